"""What the decoded tokens leave out, regressed: tokens choose among motions, the remainder makes the choice exact."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat.nn.mlp import ResidualMLP

Context = Float[Tensor, "batch seen context_dim"]
Actions = Float[Tensor, "batch time numbers"]


class Remainder(nn.Module):
    """Regress the actions minus what K tokens decode to, from the context, the decoded chunk and K.

    It learns from tokens that the policy drew itself, so that it knows how far these can be trusted: where the policy
    is unsure among neighbouring codes, it moves the chunk towards the mean of what was done in such a context.
    """

    lengths: Tensor

    def __init__(self, context_numbers: int, chunk_numbers: int, longest: int, width: int, depth: int) -> None:
        super().__init__()
        self.register_buffer("lengths", torch.arange(1, longest + 1), persistent=False)
        self.mlp = ResidualMLP(context_numbers + chunk_numbers + longest, width, depth, chunk_numbers)

    def forward(self, context: Context, decoded: Actions, lengths: Int64[Tensor, " batch"]) -> Actions:
        """Return what is to be added to the decoded chunks; all is in model space."""
        # A comparison rather than one_hot, which exporters do not know for every size.
        count = (self.lengths == lengths[:, None]).to(decoded.dtype)
        known = torch.cat([context.flatten(1), decoded.flatten(1), count], dim=1)
        return self.mlp(known).reshape(decoded.shape)
