"""The stand-alone file: made of the library's own source, whole, without what it does not need."""

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from oat.huggingface.standalone import _Gathering, gather, processor_source
from oat.nn.fsq import FSQ
from tests.huggingface.alone import ALLOWED, required


def _imported(source: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(source)))
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    return {module.split(".")[0] for module in modules}


def test_it_imports_only_what_is_allowed() -> None:
    """Beside the standard library: torch, numpy, safetensors, transformers and what transformers itself uses."""
    imported = _imported(processor_source()) - set(sys.stdlib_module_names)
    assert imported == {*ALLOWED, "huggingface_hub"}
    assert "huggingface-hub" in required(("transformers",))


def test_every_name_in_it_means_something(tmp_path: Path) -> None:
    (tmp_path / "processing_oat.py").write_text(processor_source())
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "--ignore", "F722", str(tmp_path)]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_definition_is_the_library_s_word_for_word() -> None:
    """Between the headings, all text stands in the module that the heading names."""
    _, *sections = processor_source().split("\n# --- ")
    assert len(sections) > 15
    for section in sections:
        module, _, body = section.partition(" ---\n")
        spec = find_spec(module)
        assert spec is not None
        original = Path(str(spec.origin)).read_text().splitlines()
        assert set(body.splitlines()) <= {*original, ""}, module
    for unneeded in ("class FASTTokenizer", "class Backbone", "def open_dataset", "Accelerator"):
        assert unneeded not in processor_source()


def test_a_part_of_the_library_works_alone() -> None:
    namespace: dict[str, object] = {"__name__": "alone"}
    source = gather("oat.nn.fsq", "FSQ")
    assert _imported(source) <= {"torch", "math", "typing", "abc", "dataclasses"}
    exec(compile(source, "alone.py", "exec"), namespace)
    latents = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    alone, ours = namespace["FSQ"]((8, 5, 5, 5)), FSQ((8, 5, 5, 5))  # type: ignore[operator]
    assert torch.equal(alone.encode(alone.position(latents)), ours.encode(ours.position(latents)))


def test_one_name_for_two_things_is_refused() -> None:
    """In one file there is one `_BLOCK`."""
    found = _Gathering()
    found.add("oat.tokenizers.autoencoder", "_BLOCK")
    with pytest.raises(AssertionError, match=r"_BLOCK of oat\.data\.normalize is something else elsewhere"):
        found.add("oat.data.normalize", "_BLOCK")
