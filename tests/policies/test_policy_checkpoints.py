"""A policy's checkpoint is one directory that moves anywhere; what is not a checkpoint, or damaged, is refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from oat.errors import CheckpointError
from oat.io.training_record import TrainingRecord
from oat.policies import AutoregressivePolicy, Noise, TokenDecoding, load_policy
from tests.policies.small import CONTEXT, KINDS, autoregressive, observe, policy_of
from tests.tokenizers.fitted import fitted, smooth_chunks

EVERY_KIND = (*KINDS, "diffusion", "regression")
NOISE = Noise.of([1, 2], [3, 4])

_ACT = """
import sys, numpy as np
from pathlib import Path
import torch
from safetensors.torch import save_file
from oat.data.episodes import STATE
from oat.interfaces import Observation
from oat.policies import Noise, load_policy

torch.set_num_threads(1)
folder, out = map(Path, sys.argv[1:])
observation = Observation({STATE: np.load(folder / "state.npy")}, ("push", "pull"))
chunks = {each.name: load_policy(each).predict_chunk(observation, None, Noise.of([1, 2], [3, 4]))
          for each in folder.iterdir() if each.is_dir()}
save_file({name: chunk.actions.contiguous() for name, chunk in chunks.items()}, out)
assert "transformers" not in sys.modules and "diffusers" not in sys.modules
"""


def test_a_moved_checkpoint_acts_the_same_in_another_process(tmp_path: Path) -> None:
    """Every kind of policy, FAST with its merges, from one directory without anything else."""
    expected = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for kind in EVERY_KIND:
            policy = policy_of(kind)
            policy.training_record = TrainingRecord(data="somewhere", seed=3)
            policy.save(tmp_path / "here" / kind)
            expected[kind] = policy.predict_chunk(observe(2), None, NOISE)
    finally:
        torch.set_num_threads(threads)
    np.save(tmp_path / "here" / "state.npy", observe(2).values["observation.state"])
    shutil.move(tmp_path / "here", tmp_path / "there")
    command = [sys.executable, "-c", _ACT, str(tmp_path / "there"), str(tmp_path / "found.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd="/")
    assert done.returncode == 0, done.stderr
    found = load_file(tmp_path / "found.safetensors")
    assert set(found) == set(EVERY_KIND)
    for kind, chunk in expected.items():
        assert torch.equal(found[kind].nan_to_num(99), chunk.actions.nan_to_num(99)), kind


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_checkpoint_gives_back_everything(kind: str, tmp_path: Path) -> None:
    policy = policy_of(kind).train()
    policy.training_record = TrainingRecord(data="somewhere", seed=3)
    policy.save(tmp_path / "policy")
    loaded = load_policy(str(tmp_path / "policy"))
    assert type(loaded) is type(policy)
    assert not loaded.training
    assert (loaded.context.config, loaded.config, loaded.space) == (CONTEXT, policy.config, policy.space)
    assert loaded.training_record == policy.training_record
    state = loaded.state_dict()
    assert set(state) == set(policy.state_dict())
    assert all(torch.equal(tensor, state[name]) for name, tensor in policy.state_dict().items())
    if isinstance(policy, AutoregressivePolicy):
        assert isinstance(loaded, AutoregressivePolicy)
        assert loaded.longest == policy.longest
        assert loaded.tokenizer.kind == kind
        assert loaded.tokenizer.text_state() == policy.tokenizer.text_state()


def test_fast_is_decodable_after_loading(tmp_path: Path) -> None:
    """The merges are part of it: tokens that were encoded before decode to the same actions after."""
    policy = autoregressive("fast")
    policy.save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy")
    assert isinstance(loaded, AutoregressivePolicy)
    tokens = policy.tokenizer.encode(smooth_chunks(20, 3))
    assert loaded.tokenizer.encode(smooth_chunks(20, 3)).tolist() == tokens.tolist()
    assert torch.equal(loaded.tokenizer.decode(tokens), policy.tokenizer.decode(tokens))


def test_the_weights_are_written_once(tmp_path: Path) -> None:
    """The tokenizer's lie in its own directory, which is a checkpoint of its own."""
    policy = autoregressive("oat")
    policy.save(tmp_path / "policy")
    assert not any(name.startswith("tokenizer.") for name in load_file(tmp_path / "policy" / "model.safetensors"))
    assert type(policy.tokenizer).load(tmp_path / "policy" / "tokenizer").vocab_size == policy.tokenizer.vocab_size


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer/model.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_checkpoint_is_refused(file: str, damage: str, tmp_path: Path) -> None:
    autoregressive("oat").save(tmp_path / "policy")
    weights = tmp_path / "policy" / file
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    if damage == "gone":
        weights.unlink()
    else:
        weights.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
    with pytest.raises(CheckpointError, match=r"damaged|not a readable checkpoint"):
        load_policy(tmp_path / "policy")


def test_a_tokenizer_is_no_policy(tmp_path: Path) -> None:
    fitted("oat").save(tmp_path / "tokenizer")
    with pytest.raises(CheckpointError, match="holds 'oat', expected autoregressive or diffusion or regression"):
        load_policy(tmp_path / "tokenizer")


@pytest.mark.parametrize("kind", ["oat", "diffusion", "regression"])
def test_a_configuration_that_lacks_something_is_refused(kind: str, tmp_path: Path) -> None:
    policy_of(kind).save(tmp_path / "policy")
    file = tmp_path / "policy" / "config.json"
    whole = json.loads(file.read_text())
    whole.pop("config_sha256")  # as in checkpoints of before
    needed = {"context", "config", "longest" if kind == "oat" else "space"}
    for name in needed:
        file.write_text(json.dumps({key: value for key, value in whole.items() if key != name}))
        with pytest.raises(CheckpointError, match=name):
            load_policy(tmp_path / "policy")
    file.write_text(json.dumps({**whole, "config": {**whole["config"], "layers": 3}}))
    with pytest.raises(CheckpointError, match="do not fit"):
        load_policy(tmp_path / "policy")


def test_nothing_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        load_policy(tmp_path / "nowhere")


def test_the_best_of_a_run_is_loaded(tmp_path: Path) -> None:
    policy = autoregressive("oat")
    policy.save(tmp_path / "run" / "best")
    loaded = load_policy(tmp_path / "run")
    decoding = TokenDecoding(greedy=True)
    assert torch.equal(
        loaded.predict_chunk(observe(2), decoding).actions, policy.predict_chunk(observe(2), decoding).actions
    )


def test_another_s_directory_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="not overwritten"):
        autoregressive("quest").save(tmp_path)
