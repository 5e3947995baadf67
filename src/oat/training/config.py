"""How a model is trained; importing it costs nothing, so that the command line can show its help at once."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oat.errors import InvalidOption


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation, averaging and bookkeeping."""

    steps: int = 3000
    """Optimiser steps."""
    batch_size: int = 64
    """Chunks per step, over all processes together."""
    learning_rate: float = 2e-3
    """Peak learning rate."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """After the warm-up: down to a hundredth along a cosine, or constant."""
    warmup_steps: int = 100
    """Steps of linear warm-up."""
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
    seed: int = 0
    """Determines initial weights, data order and every random draw."""
    validate_every: int = 500
    """Steps between validations and checkpoints."""

    def __post_init__(self) -> None:
        if min(self.steps, self.batch_size, self.validate_every) < 1 or self.learning_rate <= 0:
            raise InvalidOption("steps, batch_size, validate_every and learning_rate must be positive")

    def learning_rate_factor(self, step: int) -> float:
        """The fraction of the peak learning rate at a step counted from 0."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return 1.0
        progress = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    def ema_factor(self, updates: int) -> float:
        """The share of the old average that is kept at an update."""
        return min(self.ema_decay, (1 + updates) / (10 + updates))


@dataclass(frozen=True)
class FitConfig:
    """What to fit, to what, and how."""

    data: Path
    """Demonstrations in any known format."""
    out: Path
    """The run's directory; its best and last checkpoints are below it."""
    tokenizer: Literal["bin", "fast", "quest", "oat"] = "oat"
    """Which tokenizer."""
    preset: Literal["tiny", "cpu", "paper"] = "cpu"
    """Size and recipe of a learned tokenizer."""
    action_horizon: int = 32
    """H_a: actions per chunk."""
    normalization: Literal["min_max", "quantile", "mean_std"] = "min_max"
    """How actions are brought to model space."""
    validation: float = 0.1
    """Share of episodes held out."""
    seed: int = 0
    """Determines the split, the initial weights and the training."""
    steps: int | None = None
    """Training steps, if not the preset's."""
    resume: bool = False
    """Continue the run at OUT."""
