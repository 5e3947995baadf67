"""How a network is trained, as a value; importing it costs nothing, so that the command line shows its help at once."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from oat.errors import InvalidOption, unknown_name
from oat.io.flags import HIDDEN


def cosine(progress: float) -> float:
    """Return 1 at the beginning and 0.01 at the end, along half a cosine."""
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def constant(progress: float) -> float:
    """Return 1, however far the training is."""
    return 1.0


SCHEDULES: dict[str, Callable[[float], float]] = {"cosine": cosine, "constant": constant}
"""From the share of the training that is done after the warm-up to the share of the peak learning rate."""


@dataclass(frozen=True)
class TrainConfig:
    """Say how a model is trained: optimiser, learning rates, averaged weights, and how often it is looked at."""

    steps: int = 3000
    """Optimiser steps."""
    batch_size: int = 64
    """Chunks per step, over all processes together."""
    learning_rate: float = 2e-3
    """Peak learning rate."""
    schedule: str = "cosine"
    """After the warm-up: cosine, down to a hundredth, or constant."""
    warmup_steps: int = 100
    """Steps of linear warm-up."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW for everything, or Muon for the transformers' matrices and AdamW for the rest."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's momenta."""
    weight_decay: float = 0.0
    """AdamW's weight decay."""
    clip: float = 1.0
    """Largest gradient norm."""
    ema_decay: float = 0.999
    """Decay of the averaged weights that are saved; it starts low, so that short runs are not spoilt."""
    precision: Literal["no", "bf16"] = "no"
    """Automatic mixed precision."""
    compile: bool = False
    """Whether to use torch.compile."""
    seed: Annotated[int, HIDDEN] = 0
    """Determines initial weights, data order and every random draw; on the command line it is the run's."""
    validate_every: int = 500
    """Steps between validations and checkpoints."""
    workers: int = 0
    """Processes that read batches ahead; images need them."""
    wandb: str | None = None
    """A Weights & Biases project to log to as well."""

    def __post_init__(self) -> None:
        if min(self.steps, self.batch_size, self.validate_every) < 1 or self.learning_rate <= 0:
            raise InvalidOption("steps, batch_size, validate_every and learning_rate must be positive")
        if self.schedule not in SCHEDULES:
            raise unknown_name("learning-rate schedule", self.schedule, SCHEDULES)

    @property
    def warmup_is_too_long(self) -> bool:
        """Return whether the training would end before its warm-up does."""
        return self.warmup_steps >= self.steps

    def learning_rate_factor(self, step: int, steps: int | None = None) -> float:
        """Return the fraction of the peak learning rate at a step counted from 0, of `steps` if not the recipe's.

        Where it is another number of steps, the warm-up takes at most a tenth of them: a few seconds of training
        would otherwise end before their warm-up does. So would a recipe whose warm-up is not shorter than itself.
        """
        total = self.steps if steps is None else steps
        warmup = self.warmup_steps
        if steps is not None or self.warmup_is_too_long:
            warmup = min(warmup, math.ceil(total / 10))
        if step < warmup:
            return (step + 1) / warmup
        return SCHEDULES[self.schedule]((step - warmup) / max(1, total - warmup))

    def ema_factor(self, updates: int) -> float:
        """Return the share of the old average that is kept at an update."""
        return min(self.ema_decay, (1 + updates) / (10 + updates))
