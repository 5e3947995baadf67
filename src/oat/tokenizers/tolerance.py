"""The error that a reconstruction may have, by which the number of tokens of a chunk is decided."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor


@dataclass(frozen=True)
class MaxError:
    """Say how far a reconstruction may be from the actions, in action units, and how that is measured."""

    size: float
    measured: Literal["max", "rms"] = "max"
    """Whether the largest deviation of any valid number counts, or the root of their mean square."""

    def measure(self, decoded: Tensor, target: Tensor, valid: Bool[Tensor, "*rows time"]) -> Tensor:
        """Return the deviation of each row (*rows, time, dim)."""
        deviation = (decoded - target).abs() * valid[..., None]
        if self.measured == "max":
            return deviation.amax((-2, -1))
        return (deviation.square().mean(-1).sum(-1) / valid.sum(-1)).sqrt()

    def shortest(self, errors: Float[Tensor, "batch prefixes"]) -> Int64[Tensor, " batch"]:
        """Return the smallest number of tokens whose error is good enough, or all of them where none is."""
        enough = errors <= self.size
        return torch.where(enough.any(1), enough.int().argmax(1) + 1, errors.shape[1])
