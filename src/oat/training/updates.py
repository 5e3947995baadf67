"""Weight updates after a backward pass, the same in every loop: clipping, learning rates, a step, averaged weights."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from oat.errors import InvalidOption
from oat.nn.recipe import TrainConfig

Tensors = tuple[Tensor, ...] | list[Tensor]


class TimeBudget:
    """Limit a training to some minutes of wall-clock time, which begin when `share` is first called."""

    def __init__(self, minutes: float) -> None:
        if not 0 < minutes < float("inf"):
            raise InvalidOption(f"minutes must be positive, got {minutes}")
        self._seconds = 60 * minutes
        self._begin: float | None = None

    def share(self) -> float:
        """Return the share of the time that has passed, from 0; 1 and more is the end."""
        now = time.perf_counter()
        self._begin = now if self._begin is None else self._begin
        return (now - self._begin) / self._seconds

    def expected_steps(self, taken: int) -> int:
        """Return how many steps the whole time allows, if they go on as fast as those taken so far."""
        share = max(self.share(), 1e-9)  # a coarse clock may not have moved yet
        return max(taken + 1, int(taken / share))


class Updates:
    """Move a module along the gradients it has, and keep the average of its weights that is to be used."""

    def __init__(
        self,
        module: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        config: TrainConfig,
        budget: TimeBudget | None = None,
    ) -> None:
        self.module = module
        self.optimizers = optimizers
        self.config = config
        self.budget = budget
        self.step = 0
        self.average = AveragedModel(module, multi_avg_fn=self._blend)

    @property
    def learning_rate(self) -> float:
        """Return the learning rate of the next step; within a time budget, its schedule is stretched to the budget."""
        # Before the first step nothing is known of their speed; the recipe's own number of steps stands in.
        expected = None if self.budget is None or self.step == 0 else self.budget.expected_steps(self.step)
        return self.config.learning_rate * self.config.learning_rate_factor(self.step, expected)

    @property
    def finished(self) -> bool:
        """Return whether all steps have been taken, or the time is over."""
        return self.step >= self.config.steps if self.budget is None else self.budget.share() >= 1

    def apply(self) -> None:
        """Take one step; the gradients are gone afterwards."""
        nn.utils.clip_grad_norm_(self.module.parameters(), self.config.clip)
        rate = self.learning_rate
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["factor"]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.average.update_parameters(self.module)
        self.step += 1

    def _blend(self, averaged: Tensors, current: Tensors, _: Tensor | int) -> None:
        """Move the average towards the current weights, all tensors in one call."""
        torch._foreach_lerp_(averaged, current, 1 - self.config.ema_factor(self.step))
