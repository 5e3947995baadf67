"""The program as an operator meets it: in a real terminal, with real servers, killed and hung up on."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.policies.small import STATE_DIM, autoregressive
from tests.serving.running import serving

ARM = f"""
import numpy as np
from pathlib import Path

class Arm:
    def observe(self):
        return {{"observation.state": np.zeros({STATE_DIM}, np.float32)}}

    def act(self, action):
        self.tell("act")

    def stop(self):
        self.tell("stop")

    def tell(self, what):
        with Path("told").open("a") as file:
            file.write(what + "\\n")

def connect():
    return Arm()
"""
PROMPT, RUNNING, VERDICT = "q stops here: ", "Enter stops the robot", "v void (it is repeated): "
PATIENCE = 60


class Terminal:
    """The program in a pseudo-terminal."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        code = "from oat.cli import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "trials", "trials.jsonl", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env={**os.environ, "TERM": "dumb", "COLUMNS": "250"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that closing it hangs up
        )
        os.close(slave)
        self.shown, self._seen = "", 0

    def expect(self, text: str) -> None:
        """Read until the program has shown it after what was expected before."""
        end = time.monotonic() + PATIENCE
        while (place := self.shown.find(text, self._seen)) < 0:
            assert time.monotonic() < end, self.shown
            if select.select([self._master], [], [], 1)[0]:
                self.shown += self._read()
        self._seen = place + len(text)

    def type(self, line: str = "") -> None:
        os.write(self._master, line.encode() + b"\n")

    def end(self) -> int:
        """Read what is left, and give its status."""
        while more := self._read():
            self.shown += more
        return self.process.wait(PATIENCE)

    def hang_up(self) -> None:
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        if self._master >= 0:
            os.close(self._master)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)

    def _read(self) -> str:
        try:
            return os.read(self._master, 65536).decode().replace("\r\n", "\n")
        except OSError:  # the program has left
            return ""


@contextmanager
def terminal(folder: Path, *arguments: str) -> Iterator[Terminal]:
    running = Terminal(folder, *arguments)
    try:
        yield running
    finally:
        running.close()


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()[1:]]


def _wait_until_it_acts(folder: Path) -> None:
    end = time.monotonic() + PATIENCE
    while _told(folder)[-1:] != ["act"]:
        assert time.monotonic() < end
        time.sleep(0.02)


def _told(folder: Path) -> list[str]:
    told = folder / "told"
    return told.read_text().split() if told.exists() else []


@pytest.fixture
def arguments(tmp_path: Path) -> Iterator[list[str]]:
    (tmp_path / "arm.py").write_text(ARM)
    with serving(autoregressive("oat")) as server:
        url = f"ws://127.0.0.1:{server.port}"
        methods = [f"OAT_2={url},num_tokens=2", f"OAT_8={url}"]
        yield ["--methods", *methods, "--tasks", "push", "--trials", "2", "--robot", "arm:connect", "--fps", "200"]


def test_a_series_in_a_terminal(tmp_path: Path, arguments: list[str]) -> None:
    with terminal(tmp_path, *arguments) as operator:
        operator.expect(PROMPT)
        assert re.search(r"trial 1 of 4.*task +push\nblock +1 of 2, policy A\nscene +place", operator.shown, re.DOTALL)
        assert not (tmp_path / "trials.jsonl").exists()
        operator.type()
        operator.expect(RUNNING)
        _wait_until_it_acts(tmp_path)
        operator.type()
        operator.expect(VERDICT)
        assert _told(tmp_path)[-1] == "stop"
        operator.type("perhaps")
        operator.expect(VERDICT)
        operator.type("f")
        operator.expect("to judge again): ")
        operator.type("<")
        operator.expect(VERDICT)
        operator.type("s")
        operator.expect("to judge again): ")
        operator.type("the cup wobbled")
        operator.expect(PROMPT)
        assert re.search(r"trial 2 of 4.*policy B\nscene +put the objects back", operator.shown, re.DOTALL)
        (first,) = _lines(tmp_path)
        assert (first["verdict"], first["remark"], first["judge"]) == ("success", "the cup wobbled", "operator")
        assert first["steps"] > 0
        operator.type()
        operator.expect(RUNNING)
        _wait_until_it_acts(tmp_path)
        operator.process.kill()  # no chance to say anything
        assert operator.end() == -signal.SIGKILL
        blind = operator.shown
    with terminal(tmp_path, *arguments) as operator:
        operator.expect("trial 2 of 4")  # offered again
        operator.expect(PROMPT)
        operator.type()
        (tmp_path / "told").unlink()
        operator.expect(RUNNING)
        _wait_until_it_acts(tmp_path)
        operator.hang_up()  # as when the ssh connection is lost
        assert operator.process.wait(PATIENCE) != 0
        assert _told(tmp_path)[-1] == "stop"
        assert [line["verdict"] for line in _lines(tmp_path)] == ["success", "void"]
        assert _lines(tmp_path)[1]["remark"]
        blind += operator.shown
    with terminal(tmp_path, *arguments, "--seconds", "0.1") as operator:
        assert operator.end() == 1
        assert "another plan (driving" in operator.shown
        blind += operator.shown.split("driving")[0]
    with terminal(tmp_path, *arguments) as operator:
        for verdict in ("f", "v", "s", "f"):
            operator.expect(PROMPT)
            operator.type()
            operator.expect(RUNNING)
            operator.type()
            operator.expect(VERDICT)
            blind += operator.shown
            operator.type(verdict)
            operator.expect("to judge again): ")
            operator.type()
        assert operator.end() == 0
        assert not re.search("OAT_|K=all", blind)
        assert {line["decoding"] for line in _lines(tmp_path)} >= {"K=all"}
        table = operator.shown.split("table-real: trials of a robot")[1]
        assert re.search(r"OAT_2 +[012] / 2 ", table)
        assert re.search(r"OAT_8 +[012] / 2 ", table)
        assert "void and repeated" in table
        assert "the cup wobbled" in table
    assert len((tmp_path / "trials.md").read_text().splitlines()) > 8
    assert "tabular" in (tmp_path / "trials.tex").read_text()


def test_q_stops_and_the_methods_stay_hidden_until_they_are_revealed(tmp_path: Path, arguments: list[str]) -> None:
    with terminal(tmp_path, *arguments, "--seconds", "0.2") as operator:
        operator.expect(PROMPT)
        operator.type()
        operator.expect(VERDICT)  # by itself, when the time is up
        operator.type("s")
        operator.expect("to judge again): ")
        operator.type()
        operator.expect(PROMPT)
        operator.type("q")
        assert operator.end() == 0
        assert "1 of 4 trials are in trials.jsonl; the same command continues" in operator.shown
    with terminal(tmp_path, "--table") as shown:
        assert shown.end() == 1
        assert "3 of 4 trials are missing" in shown.shown
        assert "--reveal" in shown.shown
        assert "OAT_" not in shown.shown
    with terminal(tmp_path, "--reveal") as shown:
        assert shown.end() == 0
        assert re.search(r"OAT_\d +1 / 1 ", shown.shown)
        assert "revealed after 1 of 4 trials" in shown.shown
    with terminal(tmp_path, "--table") as shown:
        assert shown.end() == 0
        assert "revealed after 1 of 4 trials" in shown.shown
