"""The steps that every training takes, whether in a run's directory, on many processes, or in memory.

Nothing random is carried from step to step: the data of step s and its random numbers are functions of (seed, s). A
training that was killed and resumed therefore takes exactly the steps of one that was not.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from oat.data.chunks import Batch
from oat.data.shuffle import derive_key
from oat.data.stream import Source, window_stream
from oat.io.progress import progress_bar
from oat.nn.recipe import TrainConfig
from oat.training.optimizers import make_optimizers
from oat.training.task import Trainable, TrainingFailed
from oat.training.updates import TimeBudget, Updates

SHOW_EVERY = 20
"""Steps between looks at the loss: reading it waits for the graphics card, which would else run ahead."""


@runtime_checkable
class Backend(Protocol):
    """Compute on one device, or on many by what the accelerate library offers."""

    @property
    def process_index(self) -> int:
        """Return the number of this process among those that train together."""
        ...

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which losses are computed in the recipe's precision."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of the loss, averaged over all processes."""
        ...


@dataclass(frozen=True)
class OneDevice:
    """Compute in this process on one device, with PyTorch alone."""

    device: torch.device
    precision: str
    process_index: int = 0

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context that computes in bfloat16 if the precision says so, else in float32."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of the loss in this process."""
        torch.autograd.backward(loss)


@dataclass(frozen=True)
class Step:
    """Hold what one step gave, on this process."""

    loss: Float[Tensor, ""]
    details: Mapping[str, Tensor]


def take_steps(
    task: Trainable, model: nn.Module, batches: Iterator[Batch], updates: Updates, backend: Backend
) -> Iterator[Step]:
    """Yield after each step until all are taken or the time is over; `model` is the task's module, perhaps wrapped."""
    while not updates.finished:
        model.train()
        # By process, too: else all of them would draw the same numbers for their different chunks.
        seed = derive_key(updates.config.seed, updates.step, backend.process_index)
        with backend.autocast():
            loss, details = task.loss(model, next(batches), torch.Generator().manual_seed(seed % 2**63))
        backend.backward(loss)
        updates.apply()
        yield Step(loss.detach(), details)


def train_in_memory(
    task: Trainable, source: Source, config: TrainConfig, minutes: float | None = None, progress: bool = True
) -> Updates:
    """Train `task.module` where it is, without files; the updates hold the averaged weights and the steps taken."""
    device = next(task.module.parameters()).device
    budget = None if minutes is None else TimeBudget(minutes)
    updates = Updates(task.module, make_optimizers(task.module, task.learning_rates(), config), config, budget)
    windows = window_stream(source, config.batch_size, config.seed)
    batches = (source[chosen] for chosen in windows)
    total = config.steps if budget is None else None  # within minutes, nobody knows how many steps there will be
    with progress_bar("fitting", total, quiet=not progress) as bar:
        for step in take_steps(task, task.module, batches, updates, OneDevice(device, config.precision)):
            if updates.step % SHOW_EVERY == 0:
                shown = float(step.loss)
                check_loss(shown, updates.step)
                bar.advance(SHOW_EVERY, f"loss {shown:.4f}")
    check_weights(updates.average.module, updates.step)
    return updates


def check_loss(loss: float, step: int) -> None:
    """Raise `TrainingFailed` for a loss that is not finite."""
    if not loss < float("inf"):  # true for NaN as well, which compares with nothing
        raise TrainingFailed(f"the loss is {loss} at step {step}; a lower --learning-rate may help")


def check_weights(module: nn.Module, step: int) -> None:
    """Raise `TrainingFailed` for weights that are not finite."""
    if not all(bool(weights.isfinite().all()) for weights in module.parameters()):
        raise TrainingFailed(f"the weights are not finite at step {step}; a lower --learning-rate may help")
