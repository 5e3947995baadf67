"""Transformer blocks: pre-norm attention with normalised queries and keys, gated or plain feed-forward layers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
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


KeysValues = tuple[Float[Tensor, "batch heads k head_dim"], Float[Tensor, "batch heads k head_dim"]]


class KeyValueCache:
    """Keys and values of the positions so far, in memory that is allocated once for all of them."""

    def __init__(self, batch: int, length: int, width: Width, like: Tensor) -> None:
        shape = (2, batch, width.heads, length, width.head_dim)
        self._memory = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.length = 0

    def append(
        self, key: Float[Tensor, "batch heads head_dim"], value: Float[Tensor, "batch heads head_dim"]
    ) -> tuple[Float[Tensor, "batch heads all head_dim"], Float[Tensor, "batch heads all head_dim"]]:
        """Add a position; gives all so far."""
        keys, values = self._memory
        keys[:, :, self.length], values[:, :, self.length] = key, value
        self.length += 1
        return keys[:, :, : self.length], values[:, :, : self.length]


class Attention(nn.Module):
    """Multi-head attention of `queries` to `memory`; queries and keys are normalised, which keeps logits bounded.

    Queries that are the same for all rows may come as one row.
    """

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.width = width
        self.query = nn.Linear(width.dim, width.dim, bias=False)
        self.key_value = nn.Linear(width.dim, 2 * width.dim, bias=False)
        self.out = nn.Linear(width.dim, width.dim, bias=False)
        self.query_norm, self.key_norm = make_norm(width.head_dim), make_norm(width.head_dim)

    def keys_values(self, memory: Float[Tensor, "batch k dim"]) -> KeysValues:
        """What queries are compared with and what they receive."""
        batch, length, _ = memory.shape
        pair = self.key_value(memory).view(batch, length, 2, self.width.heads, self.width.head_dim)
        keys, values = pair.permute(2, 0, 3, 1, 4)
        return self.key_norm(keys), values

    def attend(
        self,
        queries: Float[Tensor, "#batch q dim"],
        keys_values: KeysValues,
        mask: Bool[Tensor, "#batch 1 #q k"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "batch q dim"]:
        """`mask` is True where a query may look."""
        keys, values = keys_values
        q = self.query(queries).view(*queries.shape[:2], self.width.heads, self.width.head_dim)
        q = self.query_norm(q.transpose(1, 2)).expand(keys.shape[0], -1, -1, -1)
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, is_causal=causal)
        return self.out(mixed.transpose(1, 2).reshape(keys.shape[0], queries.shape[1], self.width.dim))

    def forward(
        self,
        queries: Float[Tensor, "#batch q dim"],
        memory: Float[Tensor, "batch k dim"],
        mask: Bool[Tensor, "#batch 1 #q k"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "batch q dim"]:
        return self.attend(queries, self.keys_values(memory), mask, causal)

    def attend_once(self, query: Float[Tensor, "batch dim"], keys_values: KeysValues) -> Float[Tensor, "batch dim"]:
        """`attend` for one query a row, which has no time axis to move about."""
        one = self.query(query).view(len(query), self.width.heads, 1, self.width.head_dim)
        mixed = F.scaled_dot_product_attention(self.query_norm(one), *keys_values)
        return self.out(mixed.reshape(len(query), self.width.dim))

    def step(self, x: Float[Tensor, "batch dim"], past: KeyValueCache) -> Float[Tensor, "batch dim"]:
        """Self-attention of one position more of a causal sequence, whose earlier ones are in `past`."""
        key, value = self.key_value(x).view(len(x), 2, self.width.heads, self.width.head_dim).unbind(1)
        return self.attend_once(x, past.append(self.key_norm(key), value))


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

    def step(
        self, x: Float[Tensor, "batch dim"], memory: KeysValues, past: KeyValueCache
    ) -> Float[Tensor, "batch dim"]:
        """One position more of a causal sequence, whose earlier ones are in `past`."""
        x = x + self.self_attention.step(self.self_norm(x), past)
        x = x + self.cross_attention.attend_once(self.cross_norm(x), memory)
        return x + self.feed_forward(self.feed_forward_norm(x))


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

    def start(self, context: Float[Tensor, "batch tokens dim"], length: int) -> "Generation":
        """Begin a causal sequence of at most `length` positions; the context is projected once."""
        memories = [block.cross_attention.keys_values(context) for block in self.layers]
        pasts = [KeyValueCache(len(context), length, self.width, context) for _ in self.layers]
        return Generation(self, memories, pasts)


@dataclass(frozen=True)
class Generation:
    """A causal sequence in the making."""

    backbone: Backbone
    memories: list[KeysValues]
    pasts: list[KeyValueCache]

    def step(self, x: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        for block, memory, past in zip(self.backbone.layers, self.memories, self.pasts, strict=True):
            x = block.step(x, memory, past)
        return self.backbone.norm(x)
