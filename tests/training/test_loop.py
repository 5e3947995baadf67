"""Training resumes exactly: killed at any moment and continued, it ends with the very same weights."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from oat.data.chunks import Batch, WindowConfig, Windows
from oat.data.episodes import open_dataset
from oat.errors import CheckpointError, DatasetExists, WriteFailed
from oat.io.locks import exclusive
from oat.io.training_record import Measures, TrainingRecord
from oat.nn.recipe import TrainConfig
from oat.nn.transformer import make_linear
from oat.tokenizers import OATTokenizer
from oat.tokenizers.measures import ChunkBatch
from oat.tokenizers.space import ActionSpace
from oat.training.config import FitConfig
from oat.training.fitting import TokenizerTraining
from oat.training.loop import train
from oat.training.optimizers import make_optimizers
from oat.training.state import TrainingState, optimizer_tensors, restore_optimizer
from oat.training.task import TrainingFailed
from oat.training.tokenizers import fit_tokenizer
from tests.tokenizers.fitted import HORIZON, fitted, smooth_chunks, untrained

_TRAIN = """
import sys, torch, numpy as np
from pathlib import Path
from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import open_dataset
from oat.data.normalize import Normalizer, action_statistics
from oat.nn.recipe import TrainConfig
from oat.tokenizers import ActionSpace, OATTokenizer
from oat.tokenizers.config import OAT_PRESETS
from oat.tokenizers.measures import draw_chunks
from oat.training.fitting import TokenizerTraining
from oat.io.training_record import Measures, TrainingRecord
from oat.training.loop import train

torch.set_num_threads(1)
torch.manual_seed(0)
windows = Windows(open_dataset(sys.argv[1]), WindowConfig(8, 1))
tokenizer = OATTokenizer(ActionSpace(8, 2), OAT_PRESETS["tiny"].model)
tokenizer.normalizer = Normalizer.from_statistics(action_statistics(windows))
config = TrainConfig(steps=60, batch_size=16, warmup_steps=5, validate_every=10, learning_rate=1e-3)
task = TokenizerTraining(tokenizer, draw_chunks(windows, tokenizer, 32))
train(task, windows, config, Path(sys.argv[2]), resume=True)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    actions = np.cumsum(np.random.default_rng(0).normal(size=(400, 2)), axis=0).astype(np.float32)
    np.savez(tmp_path / "data.npz", actions=actions, episode_ends=np.arange(40, 401, 40))
    return tmp_path / "data.npz"


def _start(data: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _TRAIN, str(data), str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_run_ends_as_if_it_had_not_been_killed(data: Path, tmp_path: Path) -> None:
    whole = _start(data, tmp_path / "whole")
    _, errors = whole.communicate(timeout=200)
    assert whole.returncode == 0, errors
    killed = _start(data, tmp_path / "killed")
    deadline = time.monotonic() + 200
    while not (tmp_path / "killed" / "last" / "training_state.json").exists():
        assert time.monotonic() < deadline
        assert killed.poll() is None
        time.sleep(0.002)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert TrainingState.read(tmp_path / "killed" / "last").step < 60
    resumed = _start(data, tmp_path / "killed")
    _, errors = resumed.communicate(timeout=200)
    assert resumed.returncode == 0, errors
    for checkpoint in ("last", "best"):
        one, two = ((tmp_path / run / checkpoint / "model.safetensors").read_bytes() for run in ("whole", "killed"))
        assert one == two, checkpoint
    texts = [(tmp_path / run / "metrics.jsonl").read_text() for run in ("whole", "killed")]
    logs = [[json.loads(line) for line in text.splitlines()] for text in texts]
    for entry in (entry for log in logs for entry in log):
        for clock in ("chunks_per_s", "seconds", "processor_seconds"):
            entry.pop(clock, None)
    assert logs[0] == logs[1]
    OATTokenizer.load(tmp_path / "killed" / "best").encode(np.zeros((1, 8, 2)))


def _fit(data: Path, out: Path, *options: str, processes: int = 1, **environment: str) -> None:
    oat = [str(Path(sys.executable).with_name("oat"))]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [*(torchrun if processes > 1 else []), *oat, "fit", "--data", str(data), "--out", str(out)]
    command += ["--tokenizer", "quest", "--preset", "tiny", "--action-horizon", "8", "--batch-size", "16", *options]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=200)
    assert done.returncode == 0, done.stderr


def test_two_processes_train_as_one_does(data: Path, tmp_path: Path) -> None:
    """The shards' mean gradient is the whole batch's; QueST, because its training draws no random numbers."""
    for processes in (1, 2):
        _fit(data, tmp_path / str(processes), "--steps", "20", "--validate-every", "10", processes=processes)
    logs = [[json.loads(line) for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()] for run in "12"]
    ranks, losses = ([[line[name] for line in log if name in line] for log in logs] for name in ("processes", "loss"))
    assert ranks == [[1] * len(losses[0]), [2] * len(losses[1])]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)
    one, two = (load_file(tmp_path / run / "last" / "model.safetensors") for run in "12")
    for name, weights in one.items():
        torch.testing.assert_close(two[name], weights, atol=2e-4, rtol=1e-3)
    before = untrained("quest", ActionSpace(8, 2)).state_dict()
    assert not torch.allclose(before["encoder.to_latent.weight"], one["encoder.to_latent.weight"], atol=1e-2)


def test_wandb_logs_when_asked(data: Path, tmp_path: Path) -> None:
    for resume in ((), ("--resume",)):
        _fit(data, tmp_path / "run", "--steps", "2", "--wandb", "tests", *resume, WANDB_MODE="offline")
    logs = list((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert logs
    assert {log.stem for log in logs} == {f"run-{(tmp_path / 'run' / 'wandb_id.txt').read_text()}"}


def _bytes_changed(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_damaged_training_state_is_refused(data: Path, tmp_path: Path) -> None:
    config = FitConfig.of(data, tmp_path / "run", "quest", "tiny", action_horizon=8, steps=1, batch_size=16)
    fit_tokenizer(config)
    assert config.recipe is not None
    again = replace(config, resume=True, recipe=replace(config.recipe, steps=2))
    last = tmp_path / "run" / "last"
    assert not list(last.rglob("*.pt"))
    shutil.copytree(last, tmp_path / "sound")

    def edit(old: str, new: str) -> Callable[[Path], object]:
        return lambda file: file.write_text(file.read_text().replace(old, new))

    cases: list[tuple[str, Callable[[Path], object]]] = [
        ("training_state.json", Path.unlink),
        ("training_state.json", lambda file: file.write_text("")),
        ("training_state.json", lambda file: file.write_text("[]")),
        ("training_state.json", edit('"step": 1', '"step": null')),
        (
            "training_state.json",
            edit('"optimizers": 1', '"optimizers": 0'),
        ),
        ("training_state.safetensors", Path.unlink),
        ("training_state.safetensors", lambda file: file.write_bytes(file.read_bytes()[:1000])),
        ("training_state.safetensors", _bytes_changed),
    ]
    for name, damage in cases:
        damage(last / name)
        with pytest.raises(CheckpointError, match="cannot resume"):
            fit_tokenizer(again)
        shutil.rmtree(last)
        shutil.copytree(tmp_path / "sound", last)
    fit_tokenizer(again)
    assert TrainingState.read(last).step == 2


def test_the_pickled_state_of_an_older_version_is_not_opened(data: Path, tmp_path: Path) -> None:
    config = FitConfig.of(data, tmp_path / "run", "quest", "tiny", action_horizon=8, steps=1, batch_size=16)
    fit_tokenizer(config)
    last = tmp_path / "run" / "last"
    (last / "training_state.json").unlink()
    (last / "training_state.pt").write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    with pytest.raises(CheckpointError, match="is a pickle of an older version, and pickles are not opened"):
        fit_tokenizer(replace(config, resume=True))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_state_is_read_back_bit_by_bit(optimizer: str, tmp_path: Path) -> None:
    """Also that of weights that two names share."""
    torch.manual_seed(0)
    module = torch.nn.ModuleDict({"blocks": torch.nn.Linear(3, 3), "other": torch.nn.Linear(3, 3)})
    module["other"].weight = module["blocks"].weight
    config = TrainConfig(optimizer=optimizer)  # type: ignore[arg-type]
    optimizers = make_optimizers(module, {}, config)
    for _ in range(3):
        module["other"](module["blocks"](torch.randn(5, 3))).square().sum().backward()
        for each in optimizers:
            each.step()
    kept = [optimizer_tensors(each) for each in optimizers]
    state = TrainingState({"seed": 0}, 3, 0.1 + 0.2, module.state_dict(), module.state_dict(), kept)
    state.write(tmp_path)
    read = TrainingState.read(tmp_path)
    assert (read.started_with, read.step, read.best) == ({"seed": 0}, 3, 0.1 + 0.2)
    fresh = make_optimizers(module, {}, config)
    for each, tensors in zip(fresh, read.optimizers, strict=True):
        restore_optimizer(each, tensors)
    for one, two in zip(optimizers, fresh, strict=True):
        torch.testing.assert_close(one.state_dict()["state"], two.state_dict()["state"], rtol=0, atol=0)
    torch.testing.assert_close(dict(read.model), dict(module.state_dict()), rtol=0, atol=0)
    (first, *_) = read.optimizers
    with pytest.raises(ValueError, match="must have the shape"):
        restore_optimizer(fresh[0], {0: {name: torch.zeros(7, 7) for name in first[0]}})


def test_a_resumed_optimizer_lays_its_tensors_out_as_the_weights() -> None:
    """Files hold them row by row; beside weights that are not, a step takes several times as long."""
    layer = make_linear(3, 6)
    assert not layer.weight.is_contiguous()
    kept = {0: {"step": torch.tensor(1.0), "exp_avg": torch.randn(6, 3), "exp_avg_sq": torch.rand(6, 3)}}
    (optimizer,) = make_optimizers(layer, {}, TrainConfig())
    restore_optimizer(optimizer, kept)
    restored = optimizer_tensors(optimizer)[0]
    torch.testing.assert_close(restored, kept[0], rtol=0, atol=0)
    assert restored["exp_avg"].stride() == restored["exp_avg_sq"].stride() == layer.weight.stride()


def test_a_run_is_not_overwritten_unasked(data: Path, tmp_path: Path) -> None:
    (tmp_path / "run" / "last").mkdir(parents=True)
    windows = Windows(open_dataset(data), WindowConfig(HORIZON, 1))
    tokenizer = fitted("oat")
    assert isinstance(tokenizer, OATTokenizer)
    chunks = ChunkBatch(smooth_chunks(2), torch.ones(2, HORIZON, dtype=torch.bool), None)
    with pytest.raises(DatasetExists, match="--resume"):
        train(TokenizerTraining(tokenizer, chunks), windows, TrainConfig(), tmp_path / "run")


def test_one_process_trains_a_run(data: Path, tmp_path: Path) -> None:
    config = FitConfig.of(data, tmp_path / "run", "quest", "tiny", action_horizon=8, steps=1, batch_size=16)
    with (
        exclusive(config.out, "training"),
        pytest.raises(DatasetExists, match=r"another process is training into .*run"),
    ):
        fit_tokenizer(config)
    fit_tokenizer(config)


def test_a_file_in_the_way_is_told(data: Path) -> None:
    with pytest.raises(WriteFailed, match=r"cannot write .*data\.npz"):
        fit_tokenizer(FitConfig.of(data, data, "quest", "tiny", action_horizon=8, steps=1, batch_size=16))
    with pytest.raises(CheckpointError, match=r"data\.npz exists and is not a checkpoint"):
        fit_tokenizer(FitConfig.of(data, data, "bin", action_horizon=8))
    assert len(open_dataset(data)) == 10


class _Diverging:
    """Its loss is not a number from the fifth step on."""

    def __init__(self) -> None:
        self.module, self.steps = torch.nn.Linear(1, 1), 0

    def identity(self) -> dict[str, str]:
        return {}

    def learning_rates(self) -> dict[str, float]:
        return {}

    def loss(
        self, module: torch.nn.Module, batch: Batch, generator: torch.Generator
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        self.steps += 1
        return self.module.weight.sum() * (torch.nan if self.steps >= 5 else 1), {}

    def validate(self, module: torch.nn.Module) -> Measures:
        return Measures(score=1.0)

    def save(self, module: torch.nn.Module, directory: Path, progress: TrainingRecord) -> None:
        (directory / "step").write_text(str(progress.step))


def test_spoilt_weights_are_not_saved(data: Path, tmp_path: Path) -> None:
    """Though the loss is only looked at every 20 steps."""
    windows = Windows(open_dataset(data), WindowConfig(8, 1))
    with pytest.raises(TrainingFailed, match="the weights are not finite at step 6"):
        train(_Diverging(), windows, TrainConfig(steps=12, batch_size=4, validate_every=3), tmp_path / "run")
    assert {name: (tmp_path / "run" / name / "step").read_text() for name in ("best", "last")} == {
        "best": "3",
        "last": "3",
    }


def test_schedules() -> None:
    cosine = TrainConfig(steps=1000, warmup_steps=100)
    factors = [cosine.learning_rate_factor(step) for step in range(1000)]
    assert factors[0] == 0.01
    assert max(factors) == factors[100] == 1
    assert factors[-1] == pytest.approx(0.01, abs=1e-4)
    assert TrainConfig(schedule="constant").learning_rate_factor(2999) == 1
    short = TrainConfig(steps=50, warmup_steps=100)  # would never reach its peak
    assert max(short.learning_rate_factor(step) for step in range(50)) == 1
    assert short.learning_rate_factor(4) == 1
    assert cosine.ema_factor(0) == 0.1
    assert cosine.ema_factor(10**6) == 0.999
