"""The notebooks run from top to bottom, at tiny size, and carry no large or private output."""

import ast
import json
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.texts import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
TINY = {
    "fit-and-look": {"STROKES": 200, "STEPS": 5},
    "policy-and-rollout": {
        "DEMONSTRATIONS": 4,
        "TOKENIZER_STEPS": 3,
        "POLICY_STEPS": 3,
        "EPISODES": 1,
        "MAX_STEPS": 20,
    },
}
_LARGEST = 300_000  # bytes


def shrink(notebook: nbformat.NotebookNode, values: dict[str, int]) -> None:
    """Replace numbers in the cell that is tagged "parameters", which must have all of them."""
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    names = {target.id for node in ast.parse(cell.source).body for target in node.targets}
    assert set(values) <= names
    cell.source += "".join(f"\n{name} = {value}" for name, value in values.items())


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(TINY)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    shrink(notebook, TINY[path.stem])
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # `make test` sets one that shows nothing in a notebook
    monkeypatch.chdir(tmp_path)
    NotebookClient(notebook, timeout=240, kernel_name="python3").execute(cwd=str(tmp_path))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_it_shows_is_small(path: Path) -> None:
    assert path.stat().st_size < _LARGEST
    outputs = [output for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", ())]
    assert all(output.get("name") != "stderr" and output.output_type != "error" for output in outputs)
    shown = json.dumps([output.get("text", "") for output in outputs]) + json.dumps(
        [value for output in outputs for name, value in output.get("data", {}).items() if name != "image/png"]
    )
    assert not re.search(r"/(home|root|tmp|work|usr)/|site-packages|\\u001b", shown)  # whose machine, or colours
