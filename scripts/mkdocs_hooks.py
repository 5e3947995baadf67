"""What `make docs` adds to the pages of docs/: measured results, notebooks, and the files that every repository has.

They are written once, where people look for them on disk, and become pages of the site here. The API's pages follow
from the folders of src/oat, so that they cannot miss a module.
"""

import ast
import base64
import re
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
METAWORLD = Path("results/cpu/metaworld")
_NOT_PAGES = {"objectives": None, "cpu/metaworld": "metaworld.md"}  # folders that results/README.md links to
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>(?!\w+:)[^)\s]+)\)")  # not to other sites


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every generated page and picture."""
    for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"):
        _add(files, config, f"{name.lower()}.md", _site_links((ROOT / f"{name}.md").read_text()))
    for path in sorted((ROOT / "results").glob("*.md")):
        name = "index" if path.stem == "README" else path.stem
        _add(files, config, f"results/{name}.md", _result_links(path.read_text()))
    _add(files, config, "results/metaworld.md", _tables_page())
    for picture in sorted((ROOT / METAWORLD / "figures").glob("*.png")):
        _add(files, config, f"results/figures/{picture.name}", picture.read_bytes())
    for notebook in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        text, pictures = notebook_page(notebook)
        _add(files, config, f"notebooks/{notebook.stem}.md", text)
        for name, content in pictures.items():
            _add(files, config, f"notebooks/{name}", content)
    for package in sorted((ROOT / "src/oat").glob("*/__init__.py")):
        _add(files, config, f"api/{package.parent.name}.md", _api_page(package.parent))
    return files


def _add(files: Files, config: MkDocsConfig, path: str, content: str | bytes) -> None:
    files.append(File.generated(config, path, content=content))


def _site_links(text: str) -> str:
    """Turn links from the repository's root into links from the site's, which is docs/; other files are not on it."""

    def rewrite(link: re.Match[str]) -> str:
        target = link["target"]
        if target.startswith("docs/"):
            return f"[{link['text']}]({target.removeprefix('docs/')})"
        if target == "results/README.md":
            return f"[{link['text']}](results/index.md)"
        if target == "SECURITY.md" or target.startswith("results/"):
            return f"[{link['text']}]({target.lower()})"
        return link["text"]

    return _LINK.sub(rewrite, text)


def _result_links(text: str) -> str:
    """Keep links between results; those to folders go to the page of their tables, or become plain text."""

    def rewrite(link: re.Match[str]) -> str:
        target = link["target"].rstrip("/")
        if target in _NOT_PAGES:
            page = _NOT_PAGES[target]
            return link["text"] if page is None else f"[{link['text']}]({page})"
        return link[0]

    return _LINK.sub(rewrite, text)


def _api_page(package: Path) -> str:
    """Return a page that lets mkdocstrings describe every module of a package and of the packages below it."""
    modules = [".".join(path.with_suffix("").relative_to(ROOT / "src").parts) for path in sorted(package.rglob("*.py"))]
    described = [module for module in modules if not module.endswith("__init__")]
    summary = (ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or "").split("\n\n")[0]
    return "\n\n".join([f"# oat.{package.name}", summary, *(f"::: {module}" for module in described)])


def _tables_page() -> str:
    """Return every published table of the paper's experiments, each with its figure where it has one."""
    parts = [
        "# Every table on MetaWorld",
        "What `oat reproduce … --scale cpu --sim metaworld --publish results` wrote, unedited. "
        "[Measured results](index.md) says what follows from it.",
    ]
    names = sorted((ROOT / METAWORLD / "tables").glob("*.md"), key=lambda path: (path.stem != "table-sim", path.stem))
    for path in sorted(names, key=lambda path: path.stem.startswith("figure")):
        parts.append(f"## {path.stem}")
        if (ROOT / METAWORLD / f"figures/{path.stem}.png").exists():
            parts.append(f"![{path.stem}](figures/{path.stem}.png)")
        parts.append(path.read_text())
    return "\n\n".join(parts)


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{number}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![What this cell drew]({name})")
            else:
                text = output.get("text") or data.get("text/plain", "")
                if not text.strip():
                    continue
                parts.append(f'```text title="prints"\n{text.rstrip()}\n```')
    parts.append(f"Run it yourself: `docs/notebooks/{path.name}` in the repository.")
    return "\n\n".join(parts), pictures
