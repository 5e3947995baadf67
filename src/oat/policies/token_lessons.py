"""What a next-token policy learns from: tokens, their neighbours on a lattice, and tokens that it drew itself."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.nn.lattice import Lattice
from oat.policies.decoding import gumbel
from oat.policies.token_sequence import TokenSequence

if TYPE_CHECKING:
    from oat.policies.autoregressive import AutoregressivePolicy

_DRAWS = 4

Chunks = tuple[Float[Tensor, "batch time numbers"], Bool[Tensor, "batch time"]]
"""Actions in model space, and which of them are valid."""


class Taught(NamedTuple):
    """Hold what a policy makes of tokens that are given to it, and the errors that it learns from."""

    nll: Float[Tensor, "batch length"]
    """Negative log-likelihood of every position's token; 0 where it does not count."""
    losses: Float[Tensor, "batch length"]
    """What is minimised at every position: the same, or with soft targets the cross-entropy to them."""
    counts: Float[Tensor, "batch length"]
    """1 where a position counts."""
    likely: Int64[Tensor, "batch length"]
    """The most likely token of every position."""
    left_out: Float[Tensor, " rows"] | None = None
    """Errors of chunks with the remainder; None where there is none, or where it was not asked for."""


def soft_cross_entropy(
    logits: Float[Tensor, "*n vocab"], targets: Int64[Tensor, "*n"], lattice: Lattice, width: float
) -> Float[Tensor, "*n"]:
    """Return the cross-entropy to a Gaussian over the lattice around each target, `width` levels wide."""
    near = (-lattice.squared_distances(targets) / (2 * width**2)).softmax(-1)
    return logits.logsumexp(-1) - (near * logits).sum(-1)


def draw_nearest(
    policy: "AutoregressivePolicy",
    context: Float[Tensor, "batch tokens dim"],
    targets: Int64[Tensor, "batch length"],
    lattice: Lattice,
    generator: torch.Generator,
) -> Int64[Tensor, "batch length"]:
    """Draw several sequences for every row, and return the one whose codes are nearest to the demonstrated ones.

    A single draw tells nothing about which of several ways was demonstrated, and a regression on it would average over
    the ways. The nearest of a few goes the same way, and is yet as far from the demonstration as draws are.
    """
    repeated = context.detach().repeat_interleave(_DRAWS, 0)
    sequence = TokenSequence(policy, repeated, targets.shape[1])
    drawn = []
    for place in range(targets.shape[1]):
        logits = sequence.next_logits(place)
        sequence.last = (logits + gumbel(torch.rand(logits.shape, generator=generator)).to(logits)).argmax(-1)
        drawn.append(sequence.last)
    draws = rearrange(torch.stack(drawn, dim=1), "(batch draws) length -> batch draws length", draws=_DRAWS)
    apart = lattice.coordinates(draws) - lattice.coordinates(targets)[:, None]
    nearest = apart.square().sum((2, 3)).argmin(1)
    return draws[torch.arange(len(draws), device=draws.device), nearest]
