"""The training loop: any model with a loss, on any number of processes, resumable at any moment.

Nothing random is carried from step to step: the data of step s and its random numbers are functions of (seed, s). A run
that was killed and resumed therefore takes exactly the steps of one that was not.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from oat.data.chunks import Batch
from oat.data.shuffle import derive_key
from oat.data.stream import Source, window_stream
from oat.errors import CheckpointError, DatasetExists, OatError
from oat.io.atomic import exclusive, staged_directory
from oat.io.checkpoints import BEST, config_to_json
from oat.io.progress import progress_bar
from oat.io.training_record import Measures, TrainingRecord
from oat.training.config import TrainConfig
from oat.training.logs import MetricLog
from oat.training.optimizers import make_optimizers
from oat.training.updates import Updates

STATE_FILE = "training_state.pt"
_MAY_CHANGE = ("steps", "validate_every", "workers", "compile", "wandb")  # in the recipe of a run that is resumed
_LOG_EVERY = 20


@runtime_checkable
class Trainable(Protocol):
    """What the loop needs to know of a model and its task."""

    @property
    def module(self) -> nn.Module: ...

    def identity(self) -> Mapping[str, Any]:
        """What makes a run another one, beside data and recipe: the model's kind and sizes, as JSON-able values."""
        ...

    def learning_rates(self) -> Mapping[str, float]:
        """For parameters whose names begin so: the factor on the learning rate; all others have 1."""
        ...

    def loss(self, module: nn.Module, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss of a batch and further numbers worth logging; `module` is the model, perhaps wrapped."""
        ...

    def validate(self, module: nn.Module) -> Measures:
        """Return held-out measures; their score (smaller is better) decides which checkpoint is the best."""
        ...

    def save(self, module: nn.Module, directory: Path, progress: TrainingRecord) -> None:
        """Write the model's files into an existing directory; they record the training's recipe, step and measures."""
        ...


class TrainingFailed(OatError):
    """The loss or the weights are not finite."""


def train(task: Trainable, source: Source, config: TrainConfig, out: Path, resume: bool = False) -> None:
    """Train `task.module` on `source`; `out/best` and `out/last` are checkpoints, `out/metrics.jsonl` the log."""
    from accelerate import Accelerator

    if (out / "last").exists() and not resume:
        raise DatasetExists(f"{out} holds a run; --resume continues it, another --out keeps it")
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    # Unless told to stay on the CPU, Accelerate takes torchrun's processes there for one process each.
    accelerator = Accelerator(cpu=several and not torch.cuda.is_available(), mixed_precision=config.precision)
    with exclusive(out, f"training into {out}") if accelerator.is_main_process else nullcontext():
        run = _Run(task, source, config, out, accelerator)
        if resume and (out / "last").exists():
            run.load()
        windows = window_stream(
            source,
            config.batch_size,
            config.seed,
            start=run.updates.step,
            rank=accelerator.process_index,
            world_size=accelerator.num_processes,
        )
        run.fit(_read(source, windows, config.workers))


def _read(source: Source, windows: Iterator[np.ndarray], workers: int) -> Iterator[Batch]:
    """The batches of these windows, in this order; worker processes read ahead."""
    if workers == 0:
        return (source[chosen] for chosen in windows)
    loader: Any = DataLoader(
        source,  # type: ignore[arg-type]
        batch_size=None,
        sampler=windows,
        num_workers=workers,
        collate_fn=_as_read,
        multiprocessing_context="spawn",  # a fork would copy the locks of threads that decode videos
    )
    return iter(loader)


def _as_read(batch: Any) -> Any:
    return batch


class _Run:
    """A run in this process."""

    def __init__(self, task: Trainable, source: Source, config: TrainConfig, out: Path, accelerator: Any) -> None:
        self.task, self.config, self.out, self.accelerator = task, config, out, accelerator
        self.best = float("inf")
        recipe = {name: value for name, value in config_to_json(config).items() if name not in _MAY_CHANGE}
        self.started_with = dict(_flat({**recipe, **task.identity(), "data fingerprint": source.fingerprint()}))
        self.model, *optimizers = accelerator.prepare(
            task.module, *make_optimizers(task.module, task.learning_rates(), config)
        )
        self.updates = Updates(task.module, optimizers, config)
        self.step_model: nn.Module = torch.compile(self.model) if config.compile else self.model  # type: ignore[assignment]

    @property
    def is_main(self) -> bool:
        return bool(self.accelerator.is_main_process)

    def fit(self, batches: Iterator[Batch]) -> None:
        config, begin, first = self.config, time.perf_counter(), self.updates.step
        log = MetricLog(self.out, first, config.wandb) if self.is_main else None
        with (
            closing(log) if log else nullcontext(),
            progress_bar("training", config.steps, first, quiet=log is None) as bar,
        ):
            while self.updates.step < config.steps:
                loss, details = self._step(next(batches))
                step, lr = self.updates.step, self.updates.learning_rate
                if step % _LOG_EVERY == 0:
                    seconds = time.perf_counter() - begin
                    rate = (step - first) * config.batch_size / seconds
                    shown = float(self.accelerator.reduce(loss, "mean"))
                    self._check(shown, step)
                    bar.advance(_LOG_EVERY, f"loss {shown:.4f} · lr {lr:.1e} · {rate:.0f} chunks/s")
                    if log:
                        numbers = {name: float(value) for name, value in details.items()}
                        log.write(
                            step,
                            {
                                "loss": shown,
                                **numbers,
                                "seconds": seconds,
                                "processor_seconds": time.process_time(),
                                "chunks_per_s": rate,
                                "processes": self.accelerator.num_processes,
                            },
                        )
                if step % config.validate_every == 0 or step == config.steps:
                    self._validate(log)

    def _step(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        self.model.train()
        seed = derive_key(self.config.seed, self.updates.step, self.accelerator.process_index)
        with self.accelerator.autocast():
            loss, details = self.task.loss(self.step_model, batch, torch.Generator().manual_seed(seed % 2**63))
        self.accelerator.backward(loss)
        self.updates.apply()
        return loss.detach(), details

    @staticmethod
    def _check(loss: float, step: int) -> None:
        if not loss < float("inf"):
            raise TrainingFailed(f"the loss is {loss} at step {step}; a lower --learning-rate may help")

    def _validate(self, log: MetricLog | None) -> None:
        self.accelerator.wait_for_everyone()
        averaged, step = self.updates.average.module.eval(), self.updates.step
        if not all(bool(weights.isfinite().all()) for weights in averaged.parameters()):
            raise TrainingFailed(f"the weights are not finite at step {step}; a lower --learning-rate may help")
        if log is None:
            return
        measures = self.task.validate(averaged)
        log.write(step, {f"validation/{name}": value for name, value in measures.to_json().items()})
        progress = TrainingRecord(recipe=config_to_json(self.config), step=step, measures=measures)
        assert measures.score is not None, "what is trained has a score, or no checkpoint could be the best"
        if measures.score < self.best:
            self.best = measures.score
            with staged_directory(self.out / BEST) as folder:
                self.task.save(averaged, folder, progress)
        with staged_directory(self.out / "last") as folder:
            self.task.save(averaged, folder, progress)
            torch.save(self._state(), folder / STATE_FILE)

    def _state(self) -> dict[str, Any]:
        return {
            "started_with": self.started_with,
            "step": self.updates.step,
            "best": self.best,
            "model": self.accelerator.unwrap_model(self.model).state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.updates.optimizers],
            "average": self.updates.average.state_dict(),
        }

    def load(self) -> None:
        file = self.out / "last" / STATE_FILE
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            self._check_same_run(file, state.get("started_with", {}))
            self.updates.step, self.best = state["step"], state["best"]
            self.accelerator.unwrap_model(self.model).load_state_dict(state["model"])
            for optimizer, saved in zip(self.updates.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.updates.average.load_state_dict(state["average"])
        except (OSError, EOFError, KeyError, RuntimeError, ValueError, UnpicklingError) as error:
            raise CheckpointError(f"{file}: cannot resume from it ({error})") from error

    def _check_same_run(self, file: Path, started_with: Mapping[str, Any]) -> None:
        """Refuse to continue another run; what the state does not tell, as older ones do not, is taken to be equal."""
        now = self.started_with
        changed = [f"{name} {was}, not {now[name]}" for name, was in started_with.items() if now.get(name, was) != was]
        if changed:
            raise CheckpointError(
                f"{file}: the run was started with {'; '.join(changed)}. Resume it as it was started, "
                "or choose another --out"
            )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
