"""The README's examples run, and its file tree is the repository's."""

import re
from pathlib import Path

import numpy as np
import pytest

from oat.data.episodes import STATE, Episodes
from oat.policies import AutoregressivePolicy
from oat.policies.context import describe_context
from oat.training.policies import PRESETS
from tests.datasets import make_episodes, write_lerobot
from tests.tokenizers.fitted import DIM, fitted

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    write_lerobot(tmp_path / "demonstrations", make_episodes(12))
    fitted("oat").save(tmp_path / "tokenizer")
    states = np.zeros((20, 4), np.float32)
    seen = Episodes.from_arrays(states[:, :DIM], [20], ["reach"], observations={STATE: states})
    policy = AutoregressivePolicy(describe_context(seen, (STATE,)), fitted("oat"), PRESETS["tiny"].model)
    policy.save(tmp_path / "policy")
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) >= 3
    for example in examples:
        exec(compile(example, "README.md", "exec"), {"np": np})


def test_the_tree_names_every_package() -> None:
    tree = README.split("## The files")[1].split("```")[1]
    named = set(re.findall(r"^  (\w+)/", tree, re.MULTILINE))
    assert named == {path.parent.name for path in (ROOT / "src/oat").glob("*/__init__.py")}


def test_no_figure_is_missing() -> None:
    assert "BENCH_" not in README


def test_every_command_shown_exists() -> None:
    from oat.cli import VERBS

    shown = set(re.findall(r"^oat (\w+)", README, re.MULTILINE))
    assert shown == set(VERBS)
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make (demo|test|bench)", README)) <= targets
