"""Training in a run's directory: any model with a loss, on any number of processes, resumable at any moment."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from oat.data.chunks import Batch
from oat.data.stream import Source, window_stream
from oat.errors import CheckpointError, DatasetExists
from oat.io.atomic import staged_directory
from oat.io.checkpoints import BEST, LAST
from oat.io.config_json import config_to_json
from oat.io.locks import exclusive
from oat.io.notes import note
from oat.io.processes import interrupts_for_us_only, start_worker
from oat.io.progress import progress_bar
from oat.io.training_record import TrainingRecord
from oat.nn.recipe import TrainConfig
from oat.training.logs import MetricLog
from oat.training.optimizers import make_optimizers
from oat.training.state import STATE_FILE, TrainingState, optimizer_tensors, restore_optimizer
from oat.training.steps import SHOW_EVERY, Step, check_loss, check_weights, take_steps
from oat.training.task import Trainable, TrainingFailed
from oat.training.updates import Updates

_MAY_CHANGE = ("steps", "validate_every", "workers", "compile", "wandb")  # in the recipe of a run that is resumed


def train(task: Trainable, source: Source, config: TrainConfig, out: Path, resume: bool = False) -> None:
    """Train `task.module` on `source`; `out/best` and `out/last` are checkpoints, `out/metrics.jsonl` the log."""
    from accelerate import Accelerator  # takes seconds to import, and is not needed to fit in memory

    if (out / LAST).exists() and not resume:
        raise DatasetExists(f"{out} holds a run; --resume continues it, another --out keeps it")
    if config.warmup_is_too_long:
        warmup = max(1, -(-config.steps // 10))
        note(f"--warmup-steps {config.warmup_steps} would outlast --steps {config.steps}; the warm-up takes {warmup}")
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    # Unless told to stay on the CPU, Accelerate takes torchrun's processes there for one process each.
    accelerator = Accelerator(cpu=several and not torch.cuda.is_available(), mixed_precision=config.precision)
    # Only the main process writes, so it alone takes the lock, which would be refused to its siblings.
    with exclusive(out, f"training into {out}") if accelerator.is_main_process else nullcontext():
        run = _Run(task, source, config, out, accelerator)
        if resume and (out / LAST).exists():
            run.load()
        windows = window_stream(
            source,
            config.batch_size,
            config.seed,
            start=run.updates.step,
            rank=accelerator.process_index,
            world_size=accelerator.num_processes,
        )
        with _explained_deaths():
            run.fit(_read(source, windows, config.workers))


@contextmanager
def _explained_deaths() -> Iterator[None]:
    """Turn the death of a process that reads ahead, which PyTorch tells only in words, into an error of ours."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        raise TrainingFailed(
            "a process that reads demonstrations died (out of memory?); the same command with --resume continues"
        ) from error


def _read(source: Source, windows: Iterator[np.ndarray], workers: int) -> Iterator[Batch]:
    """Yield the batches of these windows, in this order; worker processes read ahead."""
    if workers == 0:
        return (source[chosen] for chosen in windows)
    loader: Any = DataLoader(
        source,  # type: ignore[arg-type]
        batch_size=None,  # the sampler gives whole batches, which the source reads at once
        sampler=windows,
        num_workers=workers,
        collate_fn=_as_read,
        worker_init_fn=start_worker,
        multiprocessing_context="spawn",  # a fork would copy the locks of threads that decode videos
    )
    with interrupts_for_us_only():
        return iter(loader)


def _as_read(batch: Any) -> Any:
    """Return the batch unchanged: a named function, because a lambda cannot be sent to spawned processes."""
    return batch


class _Run:
    """Keep the state of a run in this process."""

    def __init__(self, task: Trainable, source: Source, config: TrainConfig, out: Path, accelerator: Any) -> None:
        self.task = task
        self.config = config
        self.out = out
        self.accelerator = accelerator
        self.best = float("inf")
        recipe = {name: value for name, value in config_to_json(config).items() if name not in _MAY_CHANGE}
        started_with = dict(_flat({**recipe, **task.identity(), "data fingerprint": source.fingerprint()}))
        self.started_with = json.loads(json.dumps(started_with))  # as it will be read back, with lists for tuples
        self.model, *optimizers = accelerator.prepare(
            task.module, *make_optimizers(task.module, task.learning_rates(), config)
        )
        self.updates = Updates(task.module, optimizers, config)
        # Compiled beside the model rather than in its place, which would rename all weights in checkpoints.
        self.step_model: nn.Module = torch.compile(self.model) if config.compile else self.model  # type: ignore[assignment]

    @property
    def is_main(self) -> bool:
        """Return whether this process writes logs and checkpoints."""
        return bool(self.accelerator.is_main_process)

    def fit(self, batches: Iterator[Batch]) -> None:
        """Take the steps that are left; log, validate and write checkpoints as the recipe says."""
        config = self.config
        first = self.updates.step
        begin = time.perf_counter()
        log = MetricLog(self.out, first, config.wandb) if self.is_main else None
        with (
            closing(log) if log else nullcontext(),
            progress_bar("training", config.steps, first, quiet=log is None) as bar,
        ):
            for taken in take_steps(self.task, self.step_model, batches, self.updates, self.accelerator):
                step = self.updates.step
                if step % SHOW_EVERY == 0:
                    seconds = time.perf_counter() - begin
                    rate = (step - first) * config.batch_size / seconds
                    shown = self._show(taken, log, {"seconds": seconds, "chunks_per_s": rate})
                    lr = self.updates.learning_rate
                    bar.advance(SHOW_EVERY, f"loss {shown:.4f} · lr {lr:.1e} · {rate:.0f} chunks/s")
                if step % config.validate_every == 0 or step == config.steps:
                    self._validate(log)

    def _show(self, taken: Step, log: MetricLog | None, clock: Mapping[str, float]) -> float:
        """Return the loss over all processes, having checked and logged it."""
        # Every process takes part in the reduction, and so all of them fail together where the loss is not finite.
        shown = float(self.accelerator.reduce(taken.loss, "mean"))
        check_loss(shown, self.updates.step)
        if log:
            numbers = {name: float(value) for name, value in taken.details.items()}
            log.write(
                self.updates.step,
                {
                    "loss": shown,
                    **numbers,
                    "seconds": clock["seconds"],
                    "processor_seconds": time.process_time(),
                    "chunks_per_s": clock["chunks_per_s"],
                    "processes": self.accelerator.num_processes,
                },
            )
        return shown

    def _validate(self, log: MetricLog | None) -> None:
        """Measure the averaged weights, and write the last checkpoint, and the best if this is it."""
        self.accelerator.wait_for_everyone()
        averaged = self.updates.average.module.eval()
        step = self.updates.step
        check_weights(averaged, step)  # on every process: if only one failed, the others would wait for it
        if log is None:
            return
        measures = self.task.validate(averaged)
        log.write(step, {f"validation/{name}": value for name, value in measures.to_json().items()})
        progress = TrainingRecord(recipe=config_to_json(self.config), step=step, measures=measures)
        assert measures.score is not None, "what is trained has a score, or no checkpoint could be the best"
        if measures.score < self.best:
            self.best = measures.score
            # Before `last`: a run that is killed in between takes these steps again, and finds the same best.
            with staged_directory(self.out / BEST) as folder:
                self.task.save(averaged, folder, progress)
        with staged_directory(self.out / LAST) as folder:
            self.task.save(averaged, folder, progress)
            self._state().write(folder)

    def _state(self) -> TrainingState:
        """Return all that `load` needs."""
        return TrainingState(
            started_with=self.started_with,
            step=self.updates.step,
            best=self.best,
            model=self.accelerator.unwrap_model(self.model).state_dict(),
            average=self.updates.average.state_dict(),
            optimizers=[optimizer_tensors(optimizer) for optimizer in self.updates.optimizers],
        )

    def load(self) -> None:
        """Take the state of the run's last checkpoint, or raise `CheckpointError`."""
        state = TrainingState.read(self.out / LAST)
        file = self.out / LAST / STATE_FILE
        self._check_same_run(file, state.started_with)
        try:
            self.accelerator.unwrap_model(self.model).load_state_dict(state.model)
            for optimizer, kept in zip(self.updates.optimizers, state.optimizers, strict=True):
                restore_optimizer(optimizer, kept)
            self.updates.average.load_state_dict(state.average)
        except (KeyError, RuntimeError, ValueError) as error:
            raise CheckpointError(f"{file}: cannot resume from it ({error})") from error
        self.updates.step = state.step
        self.best = state.best

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
    """Yield nested values by dotted names, so that an error can name the one that differs."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
