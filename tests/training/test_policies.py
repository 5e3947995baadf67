"""`oat train`: every kind of policy from a data set to a checkpoint, on one process or two, with readers or without."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from oat.data.episodes import STATE, open_dataset
from oat.errors import CheckpointError, DatasetExists, InvalidOption, UnknownName
from oat.interfaces import Observation
from oat.policies import AutoregressivePolicy, load_policy
from oat.policies.config import RECIPES, AutoregressiveConfig
from oat.tokenizers.base import BaseTokenizer
from oat.training import policies as policy_training
from oat.training.config import FitConfig, TrainPolicyConfig
from oat.training.policies import PolicyTraining, train_policy
from oat.training.state import TrainingState
from oat.training.tokenizers import fit_tokenizer
from tests.datasets import CAMERA, WRITERS, make_episodes

HORIZON, DIM = 8, 2
TINY = RECIPES["tiny"]
FEW = replace(TINY, steps=4, batch_size=16, validate_every=2)


def _write(path: Path, action_dim: int = DIM, **arrays: np.ndarray) -> Path:
    """Twelve episodes in which a point runs from its state to another place."""
    random = np.random.default_rng(0)
    begin, end = random.normal(size=(2, 12, 1, action_dim))
    time = np.linspace(0, 1, 25)[None, :, None]
    actions = (begin + (end - begin) * time).astype(np.float32).reshape(-1, action_dim)
    state = np.concatenate([actions, np.repeat(end[:, 0], 25, axis=0)], axis=1).astype(np.float32)
    tasks = np.array(["left", "right"] * 6)
    named: dict[str, Any] = {"actions": actions, "state": state, "tasks": tasks, **arrays}
    np.savez(path, episode_ends=np.arange(25, 301, 25), **named)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return _write(tmp_path / "data.npz")


def _fit(data: Path, kind: Any, transform: str = "identity") -> Path:
    out = data.with_name(kind)
    recipe = {"steps": 2, "batch_size": 16} if kind in ("quest", "oat") else {}
    fit_tokenizer(FitConfig.of(data, out, kind, "tiny", action_horizon=HORIZON, transform=transform, **recipe))
    return out


def _observation(data: Path, rows: int = 3) -> Observation:
    episodes = open_dataset(data)
    frames = np.arange(rows)[:, None] + np.array([0, 1])
    values = {key: column[frames.reshape(-1)].reshape(rows, 2, -1) for key, column in episodes.observations.items()}
    return Observation(values, ("left",) * rows)


def _log(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def _weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "last" / "model.safetensors")


def _oat(*arguments: str | Path) -> str:
    command = [str(Path(sys.executable).with_name("oat")), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_command_trains_a_policy_that_can_be_used(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "policy"
    recipe = ("--preset", "tiny", "--steps", "20", "--validate-every", "10", "--batch-size", "16")
    told = _oat("train", "--data", data, "--tokenizer", _fit(data, "oat"), *recipe, "--out", out)
    assert "the data do not say who demonstrated, and are taken for people's" in told
    policy = load_policy(out)
    assert isinstance(policy, AutoregressivePolicy)
    expected = {"data": str(data), "validation": 0.1, "seed": 0, "demonstrator": "unknown"}
    assert policy.training_record.to_json().items() >= expected.items()
    assert policy.config.varied  # nobody noted who demonstrated: it may have been people
    chunks = list(policy.stream(_observation(data)))
    assert len(chunks) == 8
    assert chunks[-1].actions.shape == (3, HORIZON, DIM)
    steps, validations = _log(out)[1:2], [entry for entry in _log(out) if "validation/score" in entry]
    assert {"loss", *(f"nll_{place}" for place in range(1, 9))} <= set(steps[0])
    measures = {f"validation/{name}_{place}" for name in ("nll", "accuracy", "mse") for place in range(1, 9)}
    assert all(measures <= set(entry) for entry in validations)
    assert [entry["step"] for entry in validations] == [10, 20]


@pytest.mark.parametrize("kind", ["bin", "fast", "quest", "oat"])
def test_every_tokenizer_trains(kind: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "policy"
    tokenizer = _fit(data, kind)
    train_policy(TrainPolicyConfig(data, out, tokenizer=tokenizer, preset="tiny", recipe=FEW))
    policy, entry = load_policy(out), _log(out)[-1]
    assert isinstance(policy, AutoregressivePolicy)
    assert policy.tokenizer.kind == kind
    assert entry["validation/score"] < 10
    if kind == "oat":
        assert "validation/mse_8" in entry
    else:
        assert 0 <= entry["validation/undecodable"] <= (1 if kind == "fast" else 0)
    if kind == "fast":
        assert policy.longest <= policy.tokenizer.max_tokens
    policy.predict_chunk(_observation(data))


def test_bin_is_not_cached(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokens are cheaper to compute than to store."""
    monkeypatch.setattr(policy_training, "cache_tokens", lambda *_: pytest.fail("Bin's tokens were cached"))
    tokenizer = _fit(data, "bin")
    train_policy(TrainPolicyConfig(data, tmp_path / "policy", tokenizer=tokenizer, preset="tiny", recipe=FEW))


def test_tokens_are_computed_once(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run on the same data encodes the held-out windows only, to measure."""
    tokenizer, counts, original = _fit(data, "quest"), list[int](), BaseTokenizer.encode

    def count(each: BaseTokenizer, actions: Any, *rest: Any, **options: Any) -> Any:
        counts[-1] += len(actions)
        return original(each, actions, *rest, **options)

    monkeypatch.setattr(BaseTokenizer, "encode", count)
    for seed, run in ((0, "one"), (0, "two"), (5, "three")):
        counts.append(0)
        config = TrainPolicyConfig(data, tmp_path / run, tokenizer=tokenizer, preset="tiny", seed=seed, recipe=FEW)
        train_policy(config)
    held_out = 2 * 25  # one of twelve episodes, two validations
    assert counts == [11 * 25 + held_out, held_out, 11 * 25 + held_out]  # another seed is another split


@pytest.mark.parametrize("policy", ["autoregressive", "diffusion", "regression"])
def test_it_learns(policy: Any, data: Path, tmp_path: Path) -> None:
    """The held-out score falls, and the best checkpoint is the best one of the log."""
    out = tmp_path / "policy"
    tokenizer = _fit(data, "bin") if policy == "autoregressive" else None
    recipe = replace(TINY, steps=60, batch_size=32, validate_every=20)
    config = TrainPolicyConfig(data, out, policy, tokenizer, "tiny", action_horizon=4, recipe=recipe)
    train_policy(config)
    scores = [entry["validation/score"] for entry in _log(out) if "validation/score" in entry]
    losses = [entry["loss"] for entry in _log(out) if "loss" in entry]
    assert len(scores) == len(losses) == 3
    assert losses[-1] < 0.9 * losses[0]
    assert TrainingState.read(out / "last").best == min(scores)
    assert (load_file(out / "best" / "model.safetensors")["backbone.norm.weight"] != 1).any()


@pytest.mark.parametrize("policy", ["autoregressive", "diffusion", "regression"])
def test_a_finished_run_is_not_trained_again(
    policy: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "policy"
    tokenizer = _fit(data, "quest") if policy == "autoregressive" else None
    config = TrainPolicyConfig(data, out, policy, tokenizer, "tiny", action_horizon=HORIZON, recipe=FEW)
    train_policy(config)
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and "tensorboard" not in path.parts}
    with pytest.raises(DatasetExists, match="--resume continues it"):
        train_policy(config)
    monkeypatch.setattr(PolicyTraining, "loss", lambda *_: pytest.fail("a finished run was trained"))
    train_policy(replace(config, resume=True))
    assert all(path.read_bytes() == content for path, content in files.items())


def test_a_run_goes_on_where_it_was(data: Path, tmp_path: Path) -> None:
    """Four steps at once end with the weights of two and two more."""
    tokenizer = _fit(data, "fast")
    recipe = replace(FEW, schedule="constant")
    config = TrainPolicyConfig(data, tmp_path / "whole", tokenizer=tokenizer, preset="tiny", recipe=recipe)
    train_policy(config)
    config = replace(config, out=tmp_path / "parts", recipe=replace(recipe, steps=2))
    train_policy(config)
    train_policy(replace(config, recipe=recipe, resume=True))
    whole, parts = _weights(tmp_path / "whole"), _weights(tmp_path / "parts")
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())


def test_a_run_is_resumed_as_it_was_started(data: Path, tmp_path: Path) -> None:
    """Wherever the same data now lies; a state that does not tell, as older ones did not, is taken at its word."""
    tokenizer, other = _fit(data, "bin"), tmp_path / "other"
    fit_tokenizer(FitConfig.of(data, other, "bin", "tiny", action_horizon=HORIZON, normalization="mean_std"))
    config = TrainPolicyConfig(
        data, tmp_path / "policy", tokenizer=tokenizer, preset="tiny", recipe=replace(FEW, steps=1), resume=True
    )
    train_policy(config)
    changed = {
        "tokenizer fingerprint": replace(config, tokenizer=other),
        "data fingerprint": replace(config, data=_write(tmp_path / "more.npz", tasks=np.array(["left"] * 12))),
        "seed 0, not 1": replace(config, seed=1),
        "batch_size 16, not 8": replace(config, recipe=replace(FEW, batch_size=8)),
        "layers 2, not 4": replace(config, model=AutoregressiveConfig.presets()["cpu"].model),
        "obs_horizon 2, not 1": replace(config, obs_horizon=1),
        "varied True, not False": replace(config, demonstrator="scripted"),
    }
    for what, another in changed.items():
        with pytest.raises(CheckpointError, match=f"the run was started with .*{what}"):
            train_policy(another)
    data.rename(tmp_path / "moved.npz")
    config = replace(config, data=tmp_path / "moved.npz")
    train_policy(replace(config, recipe=FEW))
    last = tmp_path / "policy" / "last"
    state = TrainingState.read(last)
    assert state.step == 4
    replace(state, started_with={}).write(last)
    train_policy(replace(config, recipe=replace(FEW, steps=5, batch_size=8)))
    assert TrainingState.read(last).step == 5


def test_a_diffusion_run_and_a_tokenizer_s_are_resumed_as_they_were_started(data: Path, tmp_path: Path) -> None:
    policy = TrainPolicyConfig(
        data, tmp_path / "policy", "diffusion", preset="tiny", action_horizon=HORIZON, recipe=FEW, resume=True
    )
    train_policy(policy)
    with pytest.raises(CheckpointError, match="normalization min_max, not quantile"):
        train_policy(replace(policy, normalization="quantile"))
    few: dict[str, Any] = {"action_horizon": HORIZON, "steps": 4, "batch_size": 16, "validate_every": 2, "resume": True}
    fit_tokenizer(FitConfig.of(data, tmp_path / "fit", "oat", "tiny", **few))
    with pytest.raises(CheckpointError, match="tokenizer oat, not quest"):
        fit_tokenizer(FitConfig.of(data, tmp_path / "fit", "quest", "tiny", **few))
    with pytest.raises(CheckpointError, match=r"model\.objective\.keep uniform, not full"):
        fit_tokenizer(FitConfig.of(data, tmp_path / "fit", "oat", "tiny", keep="full", **few))


def test_relative_actions_train_without_observing_the_state_they_refer_to(tmp_path: Path) -> None:
    goal = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    data = _write(tmp_path / "data.npz", goal=goal)
    transform = '{"kind": "relative", "dims": [0, 1]}'
    tokenizer = _fit(data, "bin", transform)
    seen = ("observation.goal",)
    kinds: list[tuple[Any, Path | None]] = [("autoregressive", tokenizer), ("diffusion", None), ("regression", None)]
    for policy, given in kinds:
        out = tmp_path / policy
        config = TrainPolicyConfig(
            data, out, policy, given, "tiny", seen, action_horizon=HORIZON, transform=transform, recipe=FEW
        )
        train_policy(config)
        loaded, observation = load_policy(out), _observation(data)
        chunk = loaded.predict_chunk(observation)
        moved = {**observation.values, STATE: observation.values[STATE] + np.float32(5)}
        other = loaded.predict_chunk(Observation(moved, observation.tasks))
        torch.testing.assert_close(other.actions, chunk.actions + 5, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("writer", ["lerobot-video", "npz"])
def test_images_train_alike_with_and_without_readers(writer: str, tmp_path: Path) -> None:
    """From uint8 in a video or an array; a worker process gives exactly the batches that this one would read."""
    data = WRITERS[writer](tmp_path, make_episodes(count=6, seed=1))
    found = []
    for workers in (0, 1):
        out = tmp_path / f"policy-{workers}"
        recipe = replace(FEW, batch_size=8, workers=workers)
        config = TrainPolicyConfig(
            data, out, "diffusion", None, "tiny", (STATE, CAMERA), action_horizon=4, recipe=recipe
        )
        train_policy(config)
        found.append(_weights(out))
    assert set(found[0]) == set(found[1])
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())
    policy = load_policy(out)
    images = np.zeros((1, 2, 32, 48, 3), np.uint8)
    chunk = policy.predict_chunk(Observation({STATE: np.zeros((1, 2, 4)), CAMERA: images}, ("task 0",)))
    assert torch.isfinite(chunk.actions).all()


def test_images_train_an_autoregressive_policy(tmp_path: Path) -> None:
    data = WRITERS["npz"](tmp_path, make_episodes(count=6, seed=1))
    tokenizer = _fit(data, "quest")
    out = tmp_path / "policy"
    recipe = replace(FEW, batch_size=8)
    train_policy(TrainPolicyConfig(data, out, "autoregressive", tokenizer, "tiny", (CAMERA,), recipe=recipe))
    policy = load_policy(out)
    images = np.zeros((1, 2, 32, 48, 3), np.uint8)
    assert policy.predict_chunk(Observation({CAMERA: images}, ("task 0",))).actions.shape == (1, HORIZON, 3)


def test_convolutions_from_scratch_learn_as_fast_as_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smaller learning rate is for pretrained backbones."""
    seen: list[Any] = []
    monkeypatch.setattr(policy_training, "train", lambda task, *_: seen.append(task.learning_rates()))
    data = WRITERS["npz"](tmp_path, make_episodes(count=6, seed=1))
    train_policy(TrainPolicyConfig(data, tmp_path / "policy", "diffusion", observe=(CAMERA,), action_horizon=4))
    assert seen == [{"context.vision.": 1.0}]


def test_mistakes_are_told_before_anything_is_trained(data: Path, tmp_path: Path) -> None:
    config = TrainPolicyConfig(data, tmp_path / "policy", preset="tiny", recipe=FEW)
    with pytest.raises(InvalidOption, match="needs --tokenizer"):
        train_policy(config)
    tokenizer = _fit(data, "bin")
    with pytest.raises(InvalidOption, match="leave out --tokenizer"):
        train_policy(replace(config, policy="diffusion", tokenizer=tokenizer))
    with pytest.raises(InvalidOption, match="leave out --search"):
        train_policy(replace(config, policy="regression", search=1))
    with pytest.raises(InvalidOption, match="search needs a tokenizer such as oat"):
        train_policy(replace(config, tokenizer=tokenizer, search=1))
    with pytest.raises(InvalidOption, match="kind regression has no tokenizer: leave out --tokenizer"):
        train_policy(replace(config, policy="regression", tokenizer=tokenizer))
    (tmp_path / "other").mkdir()
    other = _write(tmp_path / "other" / "data.npz", action_dim=3)
    with pytest.raises(InvalidOption, match="has 3-D actions, the tokenizer is for 2-D"):
        train_policy(replace(config, data=other, tokenizer=tokenizer))
    with pytest.raises(UnknownName, match=r"observation\.stat"):
        train_policy(replace(config, tokenizer=tokenizer, observe=("observation.stat",)))
    with pytest.raises(InvalidOption, match="cannot be frozen"):
        train_policy(replace(config, tokenizer=tokenizer, freeze_vision=True))
    with pytest.raises(InvalidOption, match="leave it or --vision-backbone out"):
        replace(config, vision_backbone="any", vision_channels=(8, 16))
    assert not (tmp_path / "policy").exists()


_TWO = """
import sys
from pathlib import Path
import torch
from oat.training.policies import train_policy
from oat.training.config import TrainPolicyConfig

torch.set_num_threads(1)
data, tokenizer, out = map(Path, sys.argv[1:])
recipe = {"steps": 20, "batch_size": 16, "validate_every": 5}
train_policy(TrainPolicyConfig.of(data, out, "tiny", tokenizer=tokenizer, **recipe))
world, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
(out / f"rank {rank} of {world}").touch()
"""


def test_two_processes_train_as_one_does(data: Path, tmp_path: Path) -> None:
    """FAST, because its sequences differ in length: the two halves of a batch must not count as equally long."""
    tokenizer, script = _fit(data, "fast"), tmp_path / "two.py"
    script.write_text(_TWO)
    recipe: dict[str, Any] = {"steps": 20, "batch_size": 16, "validate_every": 5}
    train_policy(TrainPolicyConfig.of(data, tmp_path / "one", "tiny", tokenizer=tokenizer, **recipe))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, str(script), str(data), str(tokenizer), str(tmp_path / "two")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "two").glob("rank *")} == {"rank 0 of 2", "rank 1 of 2"}
    one, two = _weights(tmp_path / "one"), _weights(tmp_path / "two")
    for name, weights in one.items():
        torch.testing.assert_close(two[name], weights, atol=2e-4, rtol=1e-3)
    for name, steps in (("loss", [20]), ("validation/score", [5, 10, 15, 20])):
        curves = [
            [(entry["step"], entry[name]) for entry in _log(tmp_path / run) if name in entry] for run in ("one", "two")
        ]
        assert [step for step, _ in curves[0]] == steps
        assert np.allclose(curves[0], curves[1], atol=1e-3)
    assert curves[0][0][1] > curves[0][-1][1] + 1e-2  # and they learned something
