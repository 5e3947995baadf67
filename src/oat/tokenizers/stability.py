"""How stable tokens are: which of them change when a chunk begins one step later, or when it is slightly noised.

Observations of neighbouring steps are nearly equal, and so are their chunks. A token that differs between them is one
that a policy has to tell from almost nothing.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from oat.data.chunks import Windows
from oat.errors import InvalidOption
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.measures import ChunkBatch, chunks_at, draw_windows
from oat.tokenizers.tokens import Tokens

NOISE = 0.01
"""Usual standard deviation of the noise in model space, where actions span 2: what a sensor or a hand might add."""


@dataclass(frozen=True)
class Flips:
    """Hold how often the tokens of two nearly equal chunks differ, at each position."""

    compared: tuple[int, ...]
    """Pairs of sequences of which at least one has a token at the position."""
    differ: tuple[float, ...]
    """Share of them whose tokens differ there; a token that only one of the two has differs."""
    levels: tuple[float, ...]
    """Mean distance on the lattice of codes, in levels, summed over its axes; empty where ids are only names."""

    def share(self, first: int | None = None) -> float:
        """Return the share of all tokens that differ, or of at most so many first ones of each sequence."""
        return float(np.average(self.differ[:first], weights=self.compared[:first]))


@dataclass(frozen=True)
class Stability:
    """Hold how a tokenizer's tokens change when chunks hardly do."""

    pairs: int
    """Chunks that were compared with their neighbours."""
    shifted: Flips
    """Between windows that begin one step apart."""
    noised: Flips
    """Between chunks and themselves with noise."""
    noise: float
    """Standard deviation of the noise, in model space."""


def draw_neighbours(
    windows: Windows, tokenizer: BaseTokenizer, most: int | None = None
) -> tuple[ChunkBatch, ChunkBatch]:
    """Return chunks of all windows, or of at most `most` random ones, and those that begin one step later.

    The last window of an episode has no neighbour and is left out. Where an episode ends within a chunk, both repeat
    its last action, as they do for policies.
    """
    numbers = draw_windows(windows, most)
    episodes, steps = windows.locate(numbers)
    followed = numbers[steps + 1 < windows.episodes.lengths[episodes]]
    return chunks_at(windows, followed, tokenizer), chunks_at(windows, followed + 1, tokenizer)


@torch.no_grad()
def measure_stability(
    tokenizer: BaseTokenizer, chunks: ChunkBatch, later: ChunkBatch, generator: torch.Generator, noise: float = NOISE
) -> Stability:
    """Compare the chunks' tokens with those of their neighbours one step later, and of themselves with noise."""
    if not len(chunks):
        raise InvalidOption("there are no neighbouring windows to compare: no episode has two steps")
    here = chunks.to(tokenizer.device)
    ahead = later.to(tokenizer.device)
    actions = tokenizer.to_model_space(here.actions, here.state)
    drawn = torch.randn(actions.shape, generator=generator).to(actions.device)
    tokens = _encode(tokenizer, actions, here.valid)
    shifted = _encode(tokenizer, tokenizer.to_model_space(ahead.actions, ahead.state), ahead.valid)
    noised = _encode(tokenizer, actions + noise * drawn, here.valid)
    return Stability(
        len(chunks), count_flips(tokenizer, tokens, shifted), count_flips(tokenizer, tokens, noised), noise
    )


def _encode(
    tokenizer: BaseTokenizer, actions: Float[Tensor, "batch time dim"], valid: Bool[Tensor, "batch time"]
) -> Tokens:
    """Return the tokens of chunks in model space, bounded as `BaseTokenizer.encode` bounds them."""
    return tokenizer.encode_normalized(actions.clamp(tokenizer.normalizer.low, tokenizer.normalizer.high), valid)


def count_flips(tokenizer: BaseTokenizer, one: Tokens, other: Tokens) -> Flips:
    """Compare two sequences of each chunk, position by position."""
    width = int(torch.cat([one.lengths, other.lengths]).max())
    first = _widened(one, width)
    second = _widened(other, width)
    either = first.real | second.real
    both = first.real & second.real
    differ = either & ~(both & (first.ids == second.ids))
    compared = either.sum(0)
    return Flips(
        compared=tuple(compared.tolist()),
        differ=tuple((differ.sum(0).double() / compared).tolist()),
        levels=_level_distances(tokenizer, first, second, both),
    )


def _widened(tokens: Tokens, width: int) -> Tokens:
    """Return the same tokens with as much padding as makes them this wide."""
    return Tokens(F.pad(tokens.ids, (0, width - tokens.ids.shape[1])), tokens.lengths)


def _level_distances(
    tokenizer: BaseTokenizer, one: Tokens, other: Tokens, both: Bool[Tensor, "batch width"]
) -> tuple[float, ...]:
    """Return the mean distance in levels at each position, over the pairs that both have a token there."""
    lattice = tokenizer.lattice()
    if lattice is None:
        return ()
    distances = (lattice.coordinates(one.ids) - lattice.coordinates(other.ids)).abs().sum(-1) * both
    return tuple((distances.sum(0).double() / both.sum(0)).tolist())
