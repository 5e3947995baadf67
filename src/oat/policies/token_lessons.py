"""What a next-token policy learns from: tokens, their neighbours on a lattice, and tokens that it drew itself."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.nn.lattice import Lattice
from oat.policies.decoding import gumbel
from oat.policies.token_sequence import TokenSequence
from oat.tokenizers.decoder import masked_error

if TYPE_CHECKING:
    from oat.policies.autoregressive import AutoregressivePolicy

_ANOTHER_WAY = 0.5  # root mean square in model space, where actions span 2

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


@torch.no_grad()
def draw_tokens(
    policy: "AutoregressivePolicy",
    context: Float[Tensor, "batch tokens dim"],
    length: int,
    generator: torch.Generator,
) -> Int64[Tensor, "batch length"]:
    """Return sequences that the policy draws from its own distribution, one for every row."""
    sequence = TokenSequence(policy, context.detach(), length)
    drawn = []
    for place in range(length):
        logits = sequence.next_logits(place)
        sequence.last = (logits + gumbel(torch.rand(logits.shape, generator=generator)).to(logits)).argmax(-1)
        drawn.append(sequence.last)
    return torch.stack(drawn, dim=1)


def same_way(
    decoded: Float[Tensor, "batch time numbers"],
    actions: Float[Tensor, "batch time numbers"],
    valid: Bool[Tensor, "batch time"],
) -> Float[Tensor, " batch"]:
    """Return 1 for chunks that are about what was demonstrated, 0 for those that go another way.

    Regression on draws that go another way would teach a mean of both ways, which may be none.
    """
    return (masked_error(decoded, actions, valid) < _ANOTHER_WAY**2).float()
