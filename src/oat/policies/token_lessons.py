"""What a next-token policy learns from: tokens, their neighbours on a lattice, and the actions themselves."""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.nn.lattice import Lattice

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
    """Errors of the remainder's chunks; None where there is none, or where no actions were given."""


def soft_cross_entropy(
    logits: Float[Tensor, "*n vocab"], targets: Int64[Tensor, "*n"], lattice: Lattice, width: float
) -> Float[Tensor, "*n"]:
    """Return the cross-entropy to a Gaussian over the lattice around each target, `width` levels wide."""
    near = (-lattice.squared_distances(targets) / (2 * width**2)).softmax(-1)
    return logits.logsumexp(-1) - (near * logits).sum(-1)
