"""Transformer blocks: pre-norm attention with normalised queries and keys, gated or plain feed-forward layers."""

import math
from collections.abc import Iterable
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from oat.nn.width import Width


def sinusoidal_positions(length: int, dim: int) -> Float[Tensor, "length dim"]:
    """sin and cos of the position at geometrically spaced wavelengths (https://arxiv.org/abs/1706.03762)."""
    frequencies = torch.exp(torch.arange(0, dim, 2) * (-math.log(10_000.0) / dim))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :dim]


def make_norm(dim: int) -> nn.LayerNorm:
    """LayerNorm without bias rather than RMSNorm: on CPU torch has a kernel of its own for it, 4 times as fast."""
    return nn.LayerNorm(dim, bias=False)


def along_outputs(weight: Float[Tensor, "outputs inputs"]) -> nn.Parameter:
    """The same numbers, laid out in memory so that all outputs' weights of one input lie side by side.

    Where outputs are not fewer than inputs, this multiplies one row up to twice as fast and many rows no slower. It is
    only a matter of strides, which loading, copying, converting, gradients and optimizers keep.
    """
    return nn.Parameter(weight.detach().t().contiguous().t())


def make_linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    """A linear layer with its weights in the faster of both layouts."""
    layer = nn.Linear(inputs, outputs, bias)
    if outputs >= inputs:
        layer.weight = along_outputs(layer.weight)
    return layer


def linear(layer: nn.Linear, x: Float[Tensor, "*n inputs"]) -> Float[Tensor, "*n outputs"]:
    """What the layer does, without calling it: for a few rows a module's call takes as long as the product."""
    return F.linear(x, layer.weight, layer.bias)


def normalize(norm: nn.LayerNorm, x: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
    """Likewise for a norm of `make_norm`."""
    return torch.layer_norm(x, norm.normalized_shape, norm.weight)


KeysValues = tuple[Float[Tensor, "batch heads k head_dim"], Float[Tensor, "batch heads k head_dim"]]


class Attention(nn.Module):
    """Multi-head attention of `queries` to `memory`; queries and keys are normalised, which keeps logits bounded.

    Queries that are the same for all rows may come as one row.
    """

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.width = width
        self.query = make_linear(width.dim, width.dim)
        self.key_value = make_linear(width.dim, 2 * width.dim)
        self.out = make_linear(width.dim, width.dim)
        self.query_norm, self.key_norm = make_norm(width.head_dim), make_norm(width.head_dim)

    def keys_values(self, memory: Float[Tensor, "batch k dim"]) -> KeysValues:
        """What queries are compared with and what they receive."""
        batch, length, _ = memory.shape
        pair = linear(self.key_value, memory).view(batch, length, 2, self.width.heads, self.width.head_dim)
        keys, values = pair.unbind(2)
        return normalize(self.key_norm, keys).transpose(1, 2), values.transpose(1, 2)

    def forward(
        self,
        queries: Float[Tensor, "#batch q dim"],
        memory: Float[Tensor, "batch k dim"],
        mask: Bool[Tensor, "#batch 1 #q k"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "batch q dim"]:
        """`mask` is True where a query may look."""
        keys, values = self.keys_values(memory)
        q = linear(self.query, queries).view(*queries.shape[:2], self.width.heads, self.width.head_dim)
        q = normalize(self.query_norm, q).transpose(1, 2).expand(keys.shape[0], -1, -1, -1)
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, is_causal=causal)
        return linear(self.out, mixed.transpose(1, 2).reshape(keys.shape[0], queries.shape[1], self.width.dim))


class GatedFeedForward(nn.Module):
    """SwiGLU: https://arxiv.org/abs/2002.05202."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        hidden = 8 * math.ceil(width.dim * 8 / 3 / 8)
        self.gate_and_value = make_linear(width.dim, 2 * hidden)
        self.out = make_linear(hidden, width.dim)

    def forward(self, x: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        gate, value = linear(self.gate_and_value, x).chunk(2, dim=-1)
        return linear(self.out, F.silu(gate) * value)


class FeedForward(nn.Module):
    """Two layers with GELU, four times as wide inside."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.inner = make_linear(width.dim, 4 * width.dim, bias=True)
        self.out = make_linear(4 * width.dim, width.dim, bias=True)

    def forward(self, x: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        return linear(self.out, F.gelu(linear(self.inner, x)))


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
        normed = normalize(self.attention_norm, x)
        if last is not None:
            x, queries = x[:, -last:], normed[:, -last:]
            mask = None if mask is None else mask[:, :, -last:]
        else:
            queries = normed
        x = x + self.attention(queries, normed, mask)
        return x + self.feed_forward(normalize(self.feed_forward_norm, x))


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
        normed = normalize(self.self_norm, x)
        x = x + self.self_attention(normed, normed, causal=causal)
        x = x + self.cross_attention(normalize(self.cross_norm, x), memory)
        return x + self.feed_forward(normalize(self.feed_forward_norm, x))


class Backbone(nn.Module):
    """The policies' transformer: blocks over a sequence, with a memory of context tokens."""

    def __init__(self, width: Width, layers: int) -> None:
        super().__init__()
        self.width = width
        self.blocks = nn.ModuleList(DecoderBlock(width) for _ in range(layers))
        self.norm = make_norm(width.dim)

    @property
    def layers(self) -> Iterable[DecoderBlock]:
        return cast(Iterable[DecoderBlock], self.blocks)

    def forward(
        self, x: Float[Tensor, "batch time dim"], context: Float[Tensor, "batch tokens dim"], causal: bool
    ) -> Float[Tensor, "batch time dim"]:
        for block in self.blocks:
            x = block(x, context, causal)
        return self.norm(x)
