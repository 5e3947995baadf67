"""A residual multilayer perceptron, which turns a few features into a chunk of actions."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from oat.nn.transformer import make_norm


class ResidualMLP(nn.Module):
    """Layers of one width, each added to what came before it, between two projections."""

    def __init__(self, inputs: int, width: int, depth: int, outputs: int) -> None:
        super().__init__()
        self.project = nn.Linear(inputs, width)
        self.norms = nn.ModuleList(make_norm(width) for _ in range(depth))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norm = make_norm(width)
        self.out = nn.Linear(width, outputs)
        # Untrained, it predicts zeros, the centre of normalised actions: the first losses are those of the data.
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Float[Tensor, "*n inputs"]) -> Float[Tensor, "*n outputs"]:
        """Return the outputs for every position."""
        x = self.project(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(F.gelu(norm(x)))
        return self.out(F.gelu(self.norm(x)))
