"""Sampling of tokens, and the random numbers for it, which belong to rows and not to batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from oat.data.shuffle import derive_key
from oat.errors import InvalidOption
from oat.policies.decoding import TokenDecoding, at_position


@dataclass(frozen=True)
class Noise:
    """The random numbers of each row: a function of its key alone, whatever batch it is in."""

    keys: tuple[int, ...]

    @classmethod
    def of(cls, seeds: Sequence[int], chunks: Sequence[int]) -> "Noise":
        """Return the noise for the given chunk of the episode with the given seed, one pair for every row."""
        if len(seeds) != len(chunks):
            raise InvalidOption(f"every row of noise has a seed and a chunk, got {len(seeds)} and {len(chunks)}")
        return cls(tuple(derive_key(seed, chunk) for seed, chunk in zip(seeds, chunks, strict=True)))

    def __len__(self) -> int:
        return len(self.keys)

    def repeated(self, samples: int) -> "Noise":
        """Return noise for several samples of each row, one after the other; the first has the row's own."""
        if samples == 1:
            return self
        return Noise(
            tuple(derive_key(key, number) if number else key for key in self.keys for number in range(samples))
        )

    def uniform(self, *shape: int) -> Float[Tensor, "rows ..."]:
        """Return numbers in [0, 1) for every row."""
        return torch.stack([torch.rand(shape, generator=_generator(key)) for key in self.keys])

    def normal(self, *shape: int) -> Float[Tensor, "rows ..."]:
        """Return standard normal numbers for every row."""
        return torch.stack([torch.randn(shape, generator=_generator(key)) for key in self.keys])


def _generator(key: int) -> torch.Generator:
    return torch.Generator().manual_seed(key % 2**63)


def gumbel(uniform: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Return noise that, added to logits, makes the largest a sample from their softmax."""
    # Clamped, because a uniform 0 or 1 would give infinite noise and then NaN.
    return -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))


def token_noise(decoding: TokenDecoding, noise: Noise | None, length: int, outputs: int) -> Tensor | None:
    """Return what is added to the logits of every token, (length, rows, outputs); None takes the most likely."""
    if noise is None or decoding.greedy:
        return None
    return gumbel(noise.uniform(length, outputs)).transpose(0, 1)


def sample(
    logits: Float[Tensor, "batch vocab"],
    noise: Float[Tensor, "batch vocab"] | None,
    temperature: float | Float[Tensor, ""],
    top_k: int | torch.SymInt,
) -> tuple[Int64[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Return one token for every row and its log-probability under the model, before temperature and top-k.

    That is the largest of logits / temperature + noise among the `top_k` most likely: Gumbel noise draws a sample from
    their softmax, none takes the most likely. Exported graphs contain this function, too.
    """
    chosen = logits.argmax(-1) if noise is None else _perturbed(logits, noise, temperature, top_k).argmax(-1)
    return chosen, logits.log_softmax(-1).gather(1, chosen[:, None])[:, 0]


def _perturbed(logits: Tensor, noise: Tensor, temperature: float | Tensor, top_k: int | torch.SymInt) -> Tensor:
    scaled = logits / temperature
    # A threshold instead of gathered ids: a graph takes any top_k, and every token keeps its own noise.
    smallest = scaled.topk(top_k).values[:, -1:]
    return scaled.masked_fill(scaled < smallest, -torch.inf) + noise


def likely_tokens(decoding: TokenDecoding, outputs: int, place: int = 0) -> int:
    """Return how many of the most likely tokens are sampled among at a place, counted from 0."""
    return min(at_position(decoding.top_k, place) or outputs, outputs)
