"""What follows every backward pass, whatever loop it is in: clipping, learning rates, a step, averaged weights."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from oat.training.config import TrainConfig

Tensors = tuple[Tensor, ...] | list[Tensor]


class Updates:
    """Moves a module along the gradients it has, and keeps the average of its weights that is to be used."""

    def __init__(self, module: nn.Module, optimizers: Sequence[torch.optim.Optimizer], config: TrainConfig) -> None:
        self.module, self.optimizers, self.config, self.step = module, optimizers, config, 0
        self.average = AveragedModel(module, multi_avg_fn=self._blend)

    @property
    def learning_rate(self) -> float:
        return self.config.learning_rate * self.config.learning_rate_factor(self.step)

    def apply(self) -> None:
        """Take one step; the gradients are gone afterwards."""
        nn.utils.clip_grad_norm_(self.module.parameters(), self.config.clip)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate * group["factor"]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.average.update_parameters(self.module)
        self.step += 1

    def _blend(self, averaged: Tensors, current: Tensors, _: Tensor | int) -> None:
        torch._foreach_lerp_(averaged, current, 1 - self.config.ema_factor(self.step))
