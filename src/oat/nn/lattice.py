"""Codes as points of a grid: what a quantizer that rounds each number on its own knows about its codes' neighbours."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Lattice:
    """Describe codes that have a level on each of several axes; a code's id has these levels as its digits."""

    levels: tuple[int, ...]
    """Levels of each axis; the first is the id's fastest digit."""

    @property
    def vocab_size(self) -> int:
        """Return how many codes there are: the product of the levels."""
        return math.prod(self.levels)

    def coordinates(self, ids: Int64[Tensor, "*n"]) -> Int64[Tensor, "*n axes"]:
        """Return the level of each code on every axis."""
        digits = []
        for size in self.levels:
            digits.append(ids % size)
            ids = ids // size
        return torch.stack(digits, dim=-1)

    def neighbours(self, ids: Int64[Tensor, "*n"]) -> Int64[Tensor, "*n directions"]:
        """Return the codes one level below and above on every axis; at the lattice's edge that is the code itself."""
        places = self.coordinates(ids)
        around = []
        stride = 1
        for axis, size in enumerate(self.levels):
            here = places[..., axis]
            around += [ids + stride * ((here + step).clamp(0, size - 1) - here) for step in (-1, 1)]
            stride *= size
        return torch.stack(around, dim=-1)

    def indicators(self) -> Float[Tensor, "vocab all_levels"]:
        """Return for every code, in the order of ids, a 1 at its level of each axis, the axes side by side."""
        places = self.coordinates(torch.arange(self.vocab_size))
        return torch.cat([F.one_hot(places[:, axis], size) for axis, size in enumerate(self.levels)], dim=1).float()

    def squared_distances(self, ids: Int64[Tensor, "*n"]) -> Float[Tensor, "*n vocab"]:
        """Return how far every code of the vocabulary is from each given one, in levels, squared.

        It is the sum of what the axes contribute, so that no table of all pairs of codes is needed.
        """
        places = self.coordinates(ids)
        total = places.new_zeros((*ids.shape, 1), dtype=torch.float32)
        for axis, size in enumerate(self.levels):
            steps = torch.arange(size, device=ids.device) - places[..., axis, None]
            # Later axes are slower digits: they come before those that are there already.
            total = (steps.square()[..., :, None] + total[..., None, :]).flatten(-2)
        return total
