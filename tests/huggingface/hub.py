"""A Hugging Face Hub of one's own: as much of its HTTP interface as it takes to upload and download a repository."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

COMMIT = "a" * 40


class Hub(ThreadingHTTPServer):
    """Keeps the files of its repositories in memory."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        words = self.path.partition("?")[0].strip("/").split("/")
        if words[:3] == ["api", "repos", "create"]:
            repository = f"me/{json.loads(body)['name']}"
            self.server.repositories.setdefault(repository, {})
            self._answer({"url": f"{self.server.url}/{repository}", "id": repository, "name": repository})
        elif words[:2] == ["api", "validate-yaml"]:
            self._answer({"errors": [], "warnings": []})
        elif words[4] == "preupload":
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            self._answer({"files": [{**file, "shouldIgnore": False} for file in files]})
        else:
            repository = "/".join(words[2:4])
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.server.repositories[repository][line["value"]["path"]] = content
            url = f"{self.server.url}/{repository}/commit/{COMMIT}"
            self._answer({"commitUrl": url, "commitOid": COMMIT, "success": True})

    def do_GET(self) -> None:
        words = unquote(self.path.partition("?")[0]).strip("/").split("/")
        if words[0] == "api":
            repository = "/".join(words[2:4])
            files = self.server.repositories.get(repository)
            if words[4:5] == ["tree"]:  # no repository here has folders
                self._answer({}, 404, {"X-Error-Code": "EntryNotFound"})
            else:
                self._answer({"id": repository, "sha": COMMIT}, 404 if files is None else 200)
            return
        repository, name = "/".join(words[:2]), "/".join(words[4:])
        content = self.server.repositories.get(repository, {}).get(name)
        if content is None:
            self._answer({}, 404, {"X-Error-Code": "EntryNotFound"})
        else:
            etag = hashlib.sha256(content).hexdigest()
            self._answer(content, 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    do_HEAD = do_GET

    def _answer(self, content: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def serve_hub() -> Iterator[Hub]:
    with Hub() as hub:
        thread = Thread(target=hub.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
