"""From latent tokens to a chunk: the single-pass decoder that OAT and QueST share (paper, appendix C)."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from oat.nn.transformer import DecoderBlock, Width, sinusoidal_positions


@dataclass(frozen=True)
class DecoderConfig:
    """The decoder's size."""

    layers: int = 4
    """Blocks of self-attention, cross-attention and feed-forward."""
    causal: bool = True
    """Whether step t of the chunk sees only steps up to t; then the first n steps cost only n steps' work."""


class ChunkDecoder(nn.Module):
    """Queries at sinusoidal positions read the latent tokens by cross-attention; one pass gives the whole chunk."""

    queries: Tensor

    def __init__(self, horizon: int, dim: int, width: Width, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("queries", sinusoidal_positions(horizon, width.dim), persistent=False)
        self.blocks = nn.ModuleList(DecoderBlock(width) for _ in range(config.layers))
        self.norm = nn.RMSNorm(width.dim)
        self.head = nn.Linear(width.dim, dim)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, memory: Float[Tensor, "batch tokens width"], steps: int) -> Float[Tensor, "batch steps dim"]:
        """The chunk's first `steps` steps."""
        computed = steps if self.config.causal else len(self.queries)
        x = self.queries[:computed].to(memory.dtype).expand(len(memory), -1, -1)
        for block in self.blocks:
            x = block(x, memory, self.config.causal)
        return self.head(self.norm(x))[:, :steps]
