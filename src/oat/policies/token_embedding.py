"""The vectors of tokens: inputs of the next-token policy and, without BOS, the weights of its output product."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from oat.nn.lattice import Lattice
from oat.nn.transformer import along_outputs


class TokenEmbedding(nn.Embedding):
    """Give each token a vector; where tokens are points of a lattice, most of it is shared with the neighbours.

    The vector of a code is then the sum of one vector for its level on each axis, and of a vector of its own that
    begins at zero: what is learned of one code is at once known of the codes around it.
    """

    indicators: Tensor

    def __init__(self, tokens: int, dim: int, lattice: Lattice | None = None) -> None:
        super().__init__(tokens, dim)
        nn.init.normal_(self.weight, std=0.02)
        # The vectors are also the output product, which reads them for one row at a time.
        self.weight = along_outputs(self.weight)
        self.levels: nn.Parameter | None = None
        if lattice is not None:
            nn.init.zeros_(self.weight[: lattice.vocab_size].detach())
            self.levels = nn.Parameter(torch.randn(sum(lattice.levels), dim) * 0.02)
            # Tokens that are no codes, such as BOS, have no levels.
            others = torch.zeros(tokens - lattice.vocab_size, sum(lattice.levels))
            indicators = torch.cat([lattice.indicators(), others])
            self.register_buffer("indicators", indicators.t().contiguous(), persistent=False)

    def forward(self, ids: Int64[Tensor, "*n"]) -> Float[Tensor, "*n dim"]:
        """Return the vectors of these tokens."""
        return F.embedding(ids, self.vectors())

    def vectors(self) -> Float[Tensor, "tokens dim"]:
        """Return the vectors of all tokens."""
        if self.levels is None:
            return self.weight
        # Multiplied transposed, so that the sum has the weights' own layout in memory.
        return torch.addmm(self.weight.t(), self.levels.t(), self.indicators).t()
