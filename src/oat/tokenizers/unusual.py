"""Tell chunks that a tokenizer was not fitted for: their error is beyond what nearly all held-out chunks had."""

import warnings

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from oat.errors import UnusualActions

USUAL = 0.99
"""Share of held-out chunks whose error counts as usual."""


def usual_error(errors: Float[Tensor, " chunks"]) -> float:
    """Return the error that nearly all held-out chunks stay below."""
    return float(errors.double().quantile(USUAL))


def errors_by_dimension(
    decoded: Float[Tensor, "batch time dim"], target: Float[Tensor, "batch time dim"], valid: Bool[Tensor, "batch time"]
) -> Float[Tensor, "batch dim"]:
    """Return each chunk's mean squared error over its valid steps, dimension by dimension."""
    squares = (decoded.float() - target).square() * valid[..., None]
    return squares.sum(1) / valid.sum(1, keepdim=True)


def warn_of_unusual(errors: Float[Tensor, "batch dim"], usual: float | None) -> None:
    """Warn of chunks beyond the usual error; a tokenizer that was fitted before it was recorded says nothing."""
    if usual is None:
        return
    unusual = errors.mean(1) > usual
    if not bool(unusual.any()):
        return
    dimension = worst_dimension(errors[unusual])
    message = (
        f"{int(unusual.sum())} of {len(errors)} chunks have errors above {usual:.2g}, which 99 % of those held out in "
        f"fitting stayed below; most of it is in dimension {dimension} of model space: the tokenizer may need to be "
        "fitted to such actions"
    )
    warnings.warn(message, UnusualActions, stacklevel=3)


def worst_dimension(errors: Float[Tensor, "chunks dim"]) -> int:
    """Return the number of the dimension that has most of these chunks' error."""
    return int(torch.argmax(errors.sum(0)))
