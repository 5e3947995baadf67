"""Checkpoints of LeRobot that somebody damaged or made up: what is ours in them is refused by a typed error."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lerobot_policy_oat.modeling_oat import OATPolicy
from test_policies import frame, make

from benchmarks.campaign.mangling import mangle_bytes, mangle_json
from oat.errors import CheckpointError, OatError

TRIALS = 60


@pytest.fixture(scope="module")
def checkpoint(demos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small policy as LeRobot saves it."""
    folder = tmp_path_factory.mktemp("saved") / "checkpoint"
    make("oat", demos).save_pretrained(folder)
    return folder


def describe(folder: Path, change: Any) -> None:
    """Change the configuration of a checkpoint."""
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("size", [10**4, 10**9])
@pytest.mark.parametrize("place", ["action_horizon", "latent_horizon", "encoder_layers", "obs_horizon"])
def test_sizes_that_the_weights_do_not_have_are_refused_at_once(
    checkpoint: Path, tmp_path: Path, place: str, size: int
) -> None:
    copy = Path(shutil.copytree(checkpoint, tmp_path / "copy"))

    def change(config: dict[str, Any]) -> None:
        described = config["description"]
        holder = {
            "action_horizon": described["tokenizer"]["space"],
            "latent_horizon": described["tokenizer"]["config"],
            "encoder_layers": described["tokenizer"]["config"],
            "obs_horizon": described["context"],
        }[place]
        assert place in holder
        holder[place] = size

    describe(copy, change)
    begin = time.process_time()
    with pytest.raises(CheckpointError):
        OATPolicy.from_pretrained(copy)
    assert time.process_time() - begin < 10


def test_a_history_that_the_policy_does_not_have_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    describe(copy, lambda config: config.update(n_obs_steps=10**9))
    with pytest.raises(CheckpointError, match="its policy has n_obs_steps 2, its configuration 1000000000"):
        OATPolicy.from_pretrained(copy)


def test_missing_weights_are_not_made_up(checkpoint: Path, tmp_path: Path) -> None:
    """LeRobot would leave random numbers there, with a line in its log."""
    from safetensors.torch import load_file, save_file

    copy = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    tensors = load_file(copy / "model.safetensors")
    lost = next(iter(tensors))
    tensors.pop(lost)
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"{lost} should be"):
        OATPolicy.from_pretrained(copy)


def _edit(copy: Path, generator: np.random.Generator) -> str:
    config = json.loads((copy / "config.json").read_text())
    told = mangle_json(config["description"], generator)
    (copy / "config.json").write_text(json.dumps(config))
    return told


def test_damaged_checkpoints_act_or_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    refused = 0
    for number in range(TRIALS):
        copy = Path(shutil.copytree(checkpoint, tmp_path / str(number)))
        told = _edit(copy, generator) if number % 2 else mangle_bytes(copy / "model.safetensors", generator)
        try:
            policy = OATPolicy.from_pretrained(copy)
            tasks = list(policy.policy.observed.tasks)[:1]
            with torch.no_grad():
                policy.select_action(frame(1, 0, tasks))
        except OatError:
            refused += 1
        except Exception as error:
            pytest.fail(f"trial {number}, {told}: {type(error).__name__}: {error}")
    assert refused > TRIALS // 4
