"""Distributions of how many tokens nested dropout keeps in training (paper, section IV-B1), as values."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from oat.errors import unknown_name


@dataclass(frozen=True)
class KeepLengths(ABC):
    """Describe how often each prefix length 1 … H_l is trained."""

    kind: ClassVar[str]

    @abstractmethod
    def probabilities(self, latent_horizon: int) -> Float[Tensor, " latent_horizon"]:
        """Return the probability of keeping 1, 2, … H_l tokens."""

    def sample(
        self, chunks: int, prefixes: int, latent_horizon: int, generator: torch.Generator
    ) -> Int64[Tensor, "chunks prefixes"]:
        """Return lengths for several prefixes of each chunk, stratified: together they spread over the distribution.

        With u uniform, the points (u + i) / m mod 1 are each uniform and pairwise 1/m apart; the distribution's
        inverse maps them to lengths.
        """
        start = torch.rand(chunks, 1, generator=generator)
        points = (start + torch.arange(prefixes) / prefixes) % 1
        cumulative = self.probabilities(latent_horizon).cumsum(0)
        # right=True passes over lengths of probability 0 even at u = 0; rounded sums may end just below 1.
        return 1 + torch.searchsorted(cumulative, points, right=True).clamp(max=latent_horizon - 1)


@dataclass(frozen=True)
class Uniform(KeepLengths):
    """Keep every length equally often, as the paper does."""

    kind: ClassVar[str] = "uniform"

    def probabilities(self, latent_horizon: int) -> Float[Tensor, " latent_horizon"]:
        return torch.full((latent_horizon,), 1 / latent_horizon)


@dataclass(frozen=True)
class PowersOfTwo(KeepLengths):
    """Keep 1, 2, 4, … tokens equally often; other lengths are never trained."""

    kind: ClassVar[str] = "powers_of_two"

    def probabilities(self, latent_horizon: int) -> Float[Tensor, " latent_horizon"]:
        lengths = torch.arange(1, latent_horizon + 1)
        powers = (lengths & (lengths - 1)) == 0  # a power of two has a single bit
        return powers / powers.sum()


@dataclass(frozen=True)
class HalfWhole(KeepLengths):
    """Keep the whole sequence half of the time, and every shorter length equally often otherwise.

    Of two prefixes of a chunk, which are drawn stratified, one is then always the whole.
    """

    kind: ClassVar[str] = "half_whole"

    def probabilities(self, latent_horizon: int) -> Float[Tensor, " latent_horizon"]:
        shorter = latent_horizon - 1
        if shorter == 0:
            return torch.ones(1)
        return torch.tensor([0.5 / shorter] * shorter + [0.5])


@dataclass(frozen=True)
class Full(KeepLengths):
    """Drop nothing: the paper's OAT×, whose tokens have no order."""

    kind: ClassVar[str] = "full"

    def probabilities(self, latent_horizon: int) -> Float[Tensor, " latent_horizon"]:
        return torch.nn.functional.one_hot(torch.tensor(latent_horizon - 1), latent_horizon).float()


KEEP_LENGTHS: dict[str, type[KeepLengths]] = {value.kind: value for value in (Uniform, PowersOfTwo, HalfWhole, Full)}


def keep_lengths(kind: str) -> KeepLengths:
    """Return the distribution with this name, or raise an error that names all of them."""
    if kind not in KEEP_LENGTHS:
        raise unknown_name("keep-length distribution", kind, KEEP_LENGTHS)
    return KEEP_LENGTHS[kind]()
