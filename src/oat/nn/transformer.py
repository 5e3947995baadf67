"""Transformer blocks: pre-norm attention with normalised queries and keys, gated or plain feed-forward layers."""

import math
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from oat.errors import InvalidOption


@dataclass(frozen=True)
class Width:
    """The size of a block."""

    dim: int = 256
    """Model dimension."""
    head_dim: int = 64
    """Dimension of each attention head."""

    def __post_init__(self) -> None:
        if self.dim % self.head_dim:
            raise InvalidOption(
                f"the model dimension {self.dim} must be a multiple of the head dimension {self.head_dim}"
            )

    @property
    def heads(self) -> int:
        return self.dim // self.head_dim


def sinusoidal_positions(length: int, dim: int) -> Float[Tensor, "length dim"]:
    """sin and cos of the position at geometrically spaced wavelengths (https://arxiv.org/abs/1706.03762)."""
    frequencies = torch.exp(torch.arange(0, dim, 2) * (-math.log(10_000.0) / dim))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :dim]


def make_norm(dim: int) -> nn.LayerNorm:
    """LayerNorm without bias rather than RMSNorm: on CPU torch has a kernel of its own for it, 4 times as fast."""
    return nn.LayerNorm(dim, bias=False)


class Attention(nn.Module):
    """Multi-head attention of `queries` to `memory`; queries and keys are normalised, which keeps logits bounded.

    Queries that are the same for all rows may come as one row.
    """

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.heads = width.heads
        self.query = nn.Linear(width.dim, width.dim, bias=False)
        self.key_value = nn.Linear(width.dim, 2 * width.dim, bias=False)
        self.out = nn.Linear(width.dim, width.dim, bias=False)
        self.query_norm, self.key_norm = make_norm(width.head_dim), make_norm(width.head_dim)

    def forward(
        self,
        queries: Float[Tensor, "#batch q dim"],
        memory: Float[Tensor, "batch k dim"],
        mask: Bool[Tensor, "#batch 1 #q k"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "batch q dim"]:
        """`mask` is True where a query may look."""
        q = self.query_norm(rearrange(self.query(queries), "b t (h d) -> b h t d", h=self.heads))
        key, v = rearrange(self.key_value(memory), "b t (two h d) -> two b h t d", two=2, h=self.heads)
        q = q.expand(len(memory), -1, -1, -1)
        mixed = F.scaled_dot_product_attention(q, self.key_norm(key), v, attn_mask=mask, is_causal=causal)
        return self.out(rearrange(mixed, "b h t d -> b t (h d)"))


class GatedFeedForward(nn.Module):
    """SwiGLU: https://arxiv.org/abs/2002.05202."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        hidden = 8 * math.ceil(width.dim * 8 / 3 / 8)
        self.gate_and_value = nn.Linear(width.dim, 2 * hidden, bias=False)
        self.out = nn.Linear(hidden, width.dim, bias=False)

    def forward(self, x: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        gate, value = self.gate_and_value(x).chunk(2, dim=-1)
        return self.out(F.silu(gate) * value)


class FeedForward(nn.Module):
    """Two layers with GELU, four times as wide inside."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.inner = nn.Linear(width.dim, 4 * width.dim)
        self.out = nn.Linear(4 * width.dim, width.dim)

    def forward(self, x: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        return self.out(F.gelu(self.inner(x)))


class EncoderBlock(nn.Module):
    """Self-attention, then a gated feed-forward layer. `last` limits the work to the last positions' outputs."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = make_norm(width.dim), make_norm(width.dim)
        self.attention, self.feed_forward = Attention(width), GatedFeedForward(width)

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        mask: Bool[Tensor, "#batch 1 time time"] | None = None,
        last: int | None = None,
    ) -> Float[Tensor, "batch out dim"]:
        normed = self.attention_norm(x)
        if last is not None:
            x, queries = x[:, -last:], normed[:, -last:]
            mask = None if mask is None else mask[:, :, -last:]
        else:
            queries = normed
        x = x + self.attention(queries, normed, mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class DecoderBlock(nn.Module):
    """Self-attention, cross-attention to a memory, then a feed-forward layer.

    An input that is the same for all rows may come as one row; until the memory is read, the work is then done once.
    """

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.self_norm, self.cross_norm, self.feed_forward_norm = (make_norm(width.dim) for _ in range(3))
        self.self_attention, self.cross_attention = Attention(width), Attention(width)
        self.feed_forward = FeedForward(width)

    def forward(
        self,
        x: Float[Tensor, "#batch time dim"],
        memory: Float[Tensor, "batch tokens dim"],
        causal: bool = False,
    ) -> Float[Tensor, "batch time dim"]:
        normed = self.self_norm(x)
        x = x + self.self_attention(normed, normed, causal=causal)
        x = x + self.cross_attention(self.cross_norm(x), memory)
        return x + self.feed_forward(self.feed_forward_norm(x))
