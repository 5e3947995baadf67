"""Finite scalar quantization: https://arxiv.org/abs/2309.15505.

Our own sixty lines rather than vector-quantize-pytorch's FSQ: that import costs 3.6 s, and we need the distance to the
nearest rounding boundary, which it does not give.
"""

import math
from itertools import combinations_with_replacement, count
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from oat.errors import InvalidOption
from oat.nn.lattice import Lattice
from oat.nn.quantizer import Quantizer

Grid = Literal["tanh", "symmetric"]


def levels_within(size: int) -> tuple[int, ...]:
    """Return 5 to 8 levels for each of a few dimensions, with the largest vocabulary that does not exceed `size`."""
    best: tuple[int, ...] = ()
    for dims in count(1):
        fitting = [levels for levels in combinations_with_replacement((8, 7, 6, 5), dims) if math.prod(levels) <= size]
        if not fitting:
            break
        best = max(best, *fitting, key=lambda levels: math.prod(levels) if levels else 0)
    if not best:
        raise InvalidOption(f"a vocabulary needs at least 5 tokens, got {size}")
    return best


class FSQ(Quantizer):
    """Round each latent number to one of `levels[d]` values; the product of levels is the vocabulary.

    tanh (the paper's): tanh squashes, an integer grid rounds; for even levels the grid is not symmetric about 0.
    symmetric: the logistic function squashes to (0, 1), which is cut into equal bins with their centres as values; for
    Gaussian latents its codes are used almost evenly. Always in float32: bfloat16 cannot tell indices near 1000 apart.
    """

    strides: Tensor
    sizes: Tensor

    def __init__(self, levels: tuple[int, ...], grid: Grid = "tanh") -> None:
        super().__init__()
        if not levels or min(levels) < 2:
            raise InvalidOption(f"FSQ levels must be at least 2 each, got {levels}")
        self.levels = tuple(levels)
        self.grid = grid
        self.register_buffer("sizes", torch.tensor(levels), persistent=False)
        strides = [math.prod(levels[:dim]) for dim in range(len(levels))]
        self.register_buffer("strides", torch.tensor(strides), persistent=False)

    @property
    def dim(self) -> int:
        """Return how many numbers a latent vector has."""
        return len(self.levels)

    @property
    def vocab_size(self) -> int:
        """Return how many codes there are: the product of the levels."""
        return math.prod(self.levels)

    def lattice(self) -> Lattice:
        """Return the grid of the levels, whose points are the codes."""
        return Lattice(self.levels)

    def position(self, latents: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return where each number lies on its level axis, in (-½, L-½): level i is everything that rounds to i."""
        latents = latents if latents.dtype == torch.float64 else latents.float()
        sizes = self.sizes.to(latents.dtype)
        if self.grid == "symmetric":
            return torch.sigmoid(1.6 * latents) * sizes - 0.5
        half = (sizes - 1) * (1 + 1e-3) / 2  # a little wider, so that the outermost levels are reached
        offset = torch.where(self.sizes % 2 == 0, 0.5, 0.0).to(latents.dtype)
        shift = torch.atanh(offset / half)
        return torch.tanh(latents + shift) * half - offset + (self.sizes // 2)

    def values(self, positions: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return level positions as numbers in [-1, 1], the decoder's input."""
        if self.grid == "symmetric":
            return (2 * positions + 1) / self.sizes - 1
        half = self.sizes // 2
        return (positions - half) / half

    def forward(self, latents: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return quantized values with the gradient of the unquantized ones (straight through)."""
        with torch.autocast(latents.device.type, enabled=False):
            position = self.position(latents)
            rounded = self.round(position).to(position.dtype)
            return self.values(position + (rounded - position).detach())

    def round(self, positions: Float[Tensor, "*n dim"]) -> Int64[Tensor, "*n dim"]:
        """Return the number of the nearest level on each axis, 0 … L-1."""
        return positions.round().long().clamp(min=torch.zeros_like(self.sizes), max=self.sizes - 1)

    def encode(self, positions: Float[Tensor, "*n dim"]) -> Int64[Tensor, "*n"]:
        """Return the vocabulary index of each rounded position, whose levels are its digits."""
        return (self.round(positions) * self.strides).sum(-1)

    def decode(self, ids: Int64[Tensor, "*n"]) -> Float[Tensor, "*n dim"]:
        """Return the quantized values of vocabulary indices."""
        return self.values(self.lattice().coordinates(ids).float())

    def margin(self, positions: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n"]:
        """Return how far the number nearest to a rounding boundary is from it, in levels."""
        below_top = positions.clamp(min=torch.zeros_like(self.sizes), max=self.sizes - 1)
        inner = (positions - below_top) == 0  # beyond the outermost levels there is no boundary
        distance = 0.5 - (positions - positions.round()).abs()
        return torch.where(inner, distance, 0.5).amin(-1)
