"""Transformer blocks: pre-norm attention with normalised queries and keys, gated or plain feed-forward layers.

Every block is defined once. Training and whole passes work on sequences (batch, time, dim). While a sequence is being
generated, `oat.nn.generation` runs the same definition on rows (batch, dim): one position of each.
"""

import math
from collections.abc import Iterable
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from oat.nn.cache import KeysValues, LayerCache
from oat.nn.width import Width


def sinusoidal_positions(length: int, dim: int) -> Float[Tensor, "length dim"]:
    """Return sin and cos of the position at geometrically spaced wavelengths (https://arxiv.org/abs/1706.03762)."""
    frequencies = torch.exp(torch.arange(0, dim, 2) * (-math.log(10_000.0) / dim))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :dim]


def make_norm(dim: int) -> nn.LayerNorm:
    """Return a LayerNorm without bias.

    It is preferred to RMSNorm because torch has a CPU kernel of its own for it, which is 4 times as fast.
    """
    return nn.LayerNorm(dim, bias=False)


def normalize(norm: nn.LayerNorm, x: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
    """Return what a norm of `make_norm` gives, without the cost of a module's call."""
    return torch.layer_norm(x, norm.normalized_shape, norm.weight)


def gelu(x: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
    """Return GELU (https://arxiv.org/abs/1606.08415) of sequences or rows."""
    if x.ndim > 2:
        return F.gelu(x)
    # A contiguous tensor would be given to oneDNN, whose kernel is thrice as slow for a few rows.
    columns = x.view(x.shape[0], 2, -1).mT
    return F.gelu(columns).mT.reshape(x.shape)


def split_heads(x: Float[Tensor, "batch *time dim"], heads: int, head_dim: int) -> Float[Tensor, "batch _ _ head_dim"]:
    """Return a tensor's heads: (batch, heads, 1, head_dim) of rows, (batch, time, heads, head_dim) of sequences."""
    if x.ndim == 2:
        return x.view(-1, heads, 1, head_dim)
    return x.view(*x.shape[:2], heads, head_dim)


def along_outputs(weight: Float[Tensor, "outputs inputs"]) -> nn.Parameter:
    """Return the same numbers, laid out in memory so that all outputs' weights of one input lie side by side.

    Where outputs are not fewer than inputs, this multiplies one row up to twice as fast and many rows no slower. It is
    only a matter of strides, which loading, copying, converting, gradients and optimizers keep.
    """
    return nn.Parameter(weight.detach().t().contiguous().t())


def lay_out_by_rows(module: nn.Module) -> None:
    """Lay out all parameters as PyTorch does by itself, for libraries that store what lies so and refuse the rest."""
    for parameter in module.parameters():
        parameter.data = parameter.data.contiguous()


class Linear(nn.Linear):
    """A linear layer whose methods do without a module's call, which for a few rows takes as long as the product."""

    def project(self, x: Float[Tensor, "*n inputs"]) -> Float[Tensor, "*n outputs"]:
        """Return the product of the weights with x, plus the bias if there is one."""
        return F.linear(x, self.weight, self.bias)

    def add_to(self, x: Float[Tensor, "... outputs"], y: Float[Tensor, "*n inputs"]) -> Float[Tensor, "*n outputs"]:
        """Return x, which may be one row for all, plus what the layer makes of y."""
        return x + F.linear(y, self.weight, self.bias)


def make_linear(inputs: int, outputs: int, bias: bool = False) -> Linear:
    """Return a linear layer with its weights in the faster of both layouts."""
    layer = Linear(inputs, outputs, bias)
    if outputs >= inputs:
        layer.weight = along_outputs(layer.weight)
    return layer


class Attention(nn.Module):
    """Multi-head attention of `queries` to `memory`; queries and keys are normalised, which keeps logits bounded.

    Queries that are the same for all rows may come as one row.
    """

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.width = width
        self.heads = width.heads
        self.head_dim = width.head_dim
        self.query = make_linear(width.dim, width.dim)
        self.key_value = make_linear(width.dim, 2 * width.dim)
        self.out = make_linear(width.dim, width.dim)
        self.query_norm = make_norm(width.head_dim)
        self.key_norm = make_norm(width.head_dim)

    def keys_values(self, memory: Float[Tensor, "batch *k dim"]) -> KeysValues:
        """Return what queries are compared with and what they receive."""
        pair = split_heads(self.key_value.project(memory), 2 * self.heads, self.head_dim)
        if memory.ndim == 2:
            keys, values = torch.split(pair, self.heads, 1)
            return normalize(self.key_norm, keys), values
        keys, values = torch.split(pair, self.heads, 2)
        # Normalised before heads come first: in that order in memory, the norm would copy them and its gradient.
        return normalize(self.key_norm, keys).transpose(1, 2), values.transpose(1, 2)

    def add_to(
        self,
        x: Float[Tensor, "#batch *q dim"],
        queries: Float[Tensor, "#batch *q dim"],
        keys_values: KeysValues,
        mask: Bool[Tensor, "#batch 1 #q k"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "batch *q dim"]:
        """Return x plus what the queries read from keys and values; `mask` is True where a query may look."""
        keys, values = keys_values
        asked = normalize(self.query_norm, split_heads(self.query.project(queries), self.heads, self.head_dim))
        if queries.ndim == 2:
            return self.out.add_to(x, F.scaled_dot_product_attention(asked, keys, values, mask).flatten(1))
        # Queries that are the same for all rows are projected once.
        asked = asked.transpose(1, 2).expand(keys.shape[0], -1, -1, -1)
        mixed = F.scaled_dot_product_attention(asked, keys, values, mask, is_causal=causal)
        return self.out.add_to(x, mixed.transpose(1, 2).flatten(2))


class GatedFeedForward(nn.Module):
    """Two layers with a gate between them, SwiGLU: https://arxiv.org/abs/2002.05202."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        hidden = 8 * math.ceil(width.dim * 8 / 3 / 8)
        self.gate_and_value = make_linear(width.dim, 2 * hidden)
        self.out = make_linear(hidden, width.dim)

    def forward(self, x: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return out(silu(gate(x)) · value(x))."""
        gate, value = self.gate_and_value.project(x).chunk(2, dim=-1)
        return self.out.project(F.silu(gate) * value)


class FeedForward(nn.Module):
    """Two layers with GELU, four times as wide inside."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.inner = make_linear(width.dim, 4 * width.dim, bias=True)
        self.out = make_linear(4 * width.dim, width.dim, bias=True)

    def add_to(self, x: Float[Tensor, "*n dim"], y: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return x plus what the layers make of y."""
        return self.out.add_to(x, gelu(self.inner.project(y)))


class EncoderBlock(nn.Module):
    """Self-attention, then a gated feed-forward layer. `last` limits the work to the last positions' outputs."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.attention_norm = make_norm(width.dim)
        self.feed_forward_norm = make_norm(width.dim)
        self.attention = Attention(width)
        self.feed_forward = GatedFeedForward(width)

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        mask: Bool[Tensor, "#batch 1 time time"] | None = None,
        last: int | None = None,
    ) -> Float[Tensor, "batch out dim"]:
        """Return the block's outputs; `mask` is True where a position may look."""
        normed = normalize(self.attention_norm, x)
        queries = normed
        if last is not None:
            x = x[:, -last:]
            queries = normed[:, -last:]
            mask = None if mask is None else mask[:, :, -last:]
        x = self.attention.add_to(x, queries, self.attention.keys_values(normed), mask)
        return x + self.feed_forward(normalize(self.feed_forward_norm, x))


class DecoderBlock(nn.Module):
    """Self-attention, cross-attention to a memory, then a feed-forward layer.

    An input that is the same for all rows may come as one row; until the memory is read, the work is then done once.
    """

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.self_norm = make_norm(width.dim)
        self.cross_norm = make_norm(width.dim)
        self.feed_forward_norm = make_norm(width.dim)
        self.self_attention = Attention(width)
        self.cross_attention = Attention(width)
        self.feed_forward = FeedForward(width)

    def forward(
        self, x: Float[Tensor, "#batch time dim"], memory: Float[Tensor, "batch tokens dim"], causal: bool = False
    ) -> Float[Tensor, "batch time dim"]:
        """Return the outputs of a whole sequence."""
        return self.extend(x, self.cross_attention.keys_values(memory), causal=causal)

    def extend(
        self,
        x: Float[Tensor, "#batch *time dim"],
        memory: KeysValues,
        cache: LayerCache | None = None,
        causal: bool = False,
        mask: Bool[Tensor, "#batch 1 #q k"] | None = None,
    ) -> Float[Tensor, "batch *time dim"]:
        """Return the outputs of a sequence, or of rows at the position after those in the cache, and add them to it.

        A cache of fixed length needs a mask, which is True where there is something to look at.
        """
        normed = normalize(self.self_norm, x)
        own = self.self_attention.keys_values(normed)
        seen = own if cache is None else cache.append(*own)
        x = self.self_attention.add_to(x, normed, seen, mask, causal)
        x = self.cross_attention.add_to(x, normalize(self.cross_norm, x), memory)
        return self.feed_forward.add_to(x, normalize(self.feed_forward_norm, x))


class Backbone(nn.Module):
    """The policies' transformer: blocks over a sequence, with a memory of context tokens."""

    def __init__(self, width: Width, layers: int) -> None:
        super().__init__()
        self.width = width
        self.blocks = nn.ModuleList(DecoderBlock(width) for _ in range(layers))
        self.norm = make_norm(width.dim)

    @property
    def layers(self) -> Iterable[DecoderBlock]:
        """Return the blocks with their type, which a ModuleList does not tell."""
        return cast(Iterable[DecoderBlock], self.blocks)

    def forward(
        self, x: Float[Tensor, "batch time dim"], context: Float[Tensor, "batch tokens dim"], causal: bool
    ) -> Float[Tensor, "batch time dim"]:
        """Return the outputs of a whole sequence; where it is causal, a position sees none after itself."""
        for block in self.blocks:
            x = block(x, context, causal)
        return self.norm(x)
