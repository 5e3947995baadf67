"""What tokens leave out: they choose among ways to move, and a regression that goes the same way makes it exact."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from oat.nn.mlp import ResidualMLP

Context = Float[Tensor, "batch seen context_dim"]
Actions = Float[Tensor, "batch time numbers"]

_ANOTHER_WAY = 0.5  # root mean square in model space, where actions span 2


def same_way(first: Actions, second: Actions) -> Bool[Tensor, "batch numbers"]:
    """Return in which of their numbers two chunks are about the same motion; NaN is the same as nothing."""
    return (first - second).square().mean(1) < _ANOTHER_WAY**2


class Remainder(nn.Module):
    """Regress the whole chunk from the context, and take it for what the tokens meant, unless they meant another.

    Where demonstrations of a context are all alike, the regression is their mean, which errs less than the most likely
    tokens. Where they go several ways it is a mean of ways that nobody goes, far from the one that the tokens chose:
    then the tokens stand. It reads no tokens. One that did would learn to trust them on contexts that the policy knows
    by heart, and find them worse elsewhere.
    """

    def __init__(self, context_numbers: int, chunk: tuple[int, int], width: int, depth: int) -> None:
        super().__init__()
        self.chunk = chunk
        self.mlp = ResidualMLP(context_numbers, width, depth, chunk[0] * chunk[1])

    def forward(self, context: Context) -> Actions:
        """Return the regressed chunks; all is in model space."""
        return self.mlp(context.flatten(1)).unflatten(1, self.chunk)

    def complete(self, context: Context, decoded: Actions) -> Actions:
        """Return each number's regressed course where it goes the way of the decoded one, else the decoded one.

        Number by number: a gripper that chatters should not keep the hand from its place.
        """
        regressed = self(context)
        return torch.where(same_way(regressed, decoded)[:, None], regressed, decoded)
