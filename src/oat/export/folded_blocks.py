"""The policies' transformer blocks with their weights folded for inference: the same functions, in fewer products.

The gains of norms go into the products that follow them; those of queries and keys, with 1/√d, into one vector; the
cross-attention's output product into its values, which are computed once per chunk. They are derived from
`oat.nn.transformer.DecoderBlock` and tested equal; benchmarks/inference.py measures what folding saves.
"""

from collections.abc import Iterable, Iterator
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from oat.nn.transformer import Attention, DecoderBlock

Heads = Float[Tensor, "#batch heads time head_dim"]
Keys = Float[Tensor, "batch all_heads head_dim memory"]
Values = Float[Tensor, "batch all_heads memory dim"]


def normalize(x: Float[Tensor, "*n dim"], gain: Float[Tensor, " dim"] | None = None) -> Float[Tensor, "*n dim"]:
    """Return the layer norm of the last axis, times a gain if there is one left to apply."""
    return F.layer_norm(x, x.shape[-1:], gain)


class FoldedBlock(nn.Module):
    """A `DecoderBlock` in pieces, so that self-attention can be over a cache or over a whole sequence."""

    query_gain: Tensor
    cross_gain: Tensor

    def __init__(self, block: DecoderBlock) -> None:
        super().__init__()
        attention = block.self_attention
        reading = block.cross_attention
        self.heads = attention.width.heads
        self.head_dim = attention.width.head_dim
        merged = torch.cat([attention.query.weight, attention.key_value.weight])
        self.query_key_value = _linear(merged * block.self_norm.weight)
        self.out = _linear(attention.out.weight)
        self.cross_query = _linear(reading.query.weight * block.cross_norm.weight)
        inner = block.feed_forward.inner
        outer = block.feed_forward.out
        self.inner = _linear(inner.weight * block.feed_forward_norm.weight, inner.bias)
        self.outer = _linear(outer.weight, outer.bias)
        self.register_buffer("query_gain", _gain(attention))
        self.register_buffer("cross_gain", _gain(reading))

    def project(self, x: Float[Tensor, "batch time dim"]) -> tuple[Heads, Heads, Heads]:
        """Return the queries, keys and values of the self-attention."""
        batch, time, _ = x.shape
        merged = self.query_key_value(normalize(x)).view(batch, time, 3 * self.heads, self.head_dim).transpose(1, 2)
        query, key, value = torch.split(merged, self.heads, 1)
        return normalize(query, self.query_gain), normalize(key), value

    def mix(
        self,
        x: Float[Tensor, "batch time dim"],
        query: Heads,
        key: Float[Tensor, "batch heads all head_dim"],
        value: Float[Tensor, "batch heads all head_dim"],
        mask: Float[Tensor, "#time all"] | None = None,
    ) -> Float[Tensor, "batch time dim"]:
        """Add the self-attention; the mask is 0 where a query may look and -∞ elsewhere."""
        scores = query @ key.transpose(2, 3)
        mixed = (scores if mask is None else scores + mask).softmax(-1) @ value
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))

    def read(
        self,
        x: Float[Tensor, "#batch time dim"],
        keys: Float[Tensor, "batch heads head_dim memory"],
        values: Float[Tensor, "batch heads memory dim"],
    ) -> Float[Tensor, "batch time dim"]:
        """Add the cross-attention, then the feed-forward layer."""
        batch, heads, memory, dim = values.shape
        query = self.cross_query(normalize(x)).view(*x.shape[:2], self.heads, self.head_dim).transpose(1, 2)
        attention = (normalize(query, self.cross_gain) @ keys).softmax(-1)
        weights = attention.transpose(1, 2).reshape(batch, x.shape[1], heads * memory)
        x = x + weights @ values.reshape(batch, heads * memory, dim)
        return x + self.outer(F.gelu(self.inner(normalize(x))))


class FoldedBlocks(nn.Module):
    """Blocks one after the other, each with its part of a memory."""

    def __init__(self, blocks: Iterable[DecoderBlock]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(FoldedBlock(block) for block in blocks)

    @property
    def layers(self) -> list[FoldedBlock]:
        """Return the blocks with their type, which a ModuleList does not tell."""
        return list(cast(Iterable[FoldedBlock], self.blocks))

    def with_memory(self, keys: Keys, values: Values) -> Iterator[tuple[FoldedBlock, tuple[Tensor, Tensor]]]:
        """Return every block with its part of what `FoldedMemory` gave."""
        heads = self.layers[0].heads
        memories = zip(torch.split(keys, heads, 1), torch.split(values, heads, 1), strict=True)
        return zip(self.layers, memories, strict=True)


class FoldedMemory(nn.Module):
    """What all blocks' cross-attentions make of a memory: its keys, and its values times the output product.

    `project` is linear, which lets memories that are themselves linear in something small be projected in advance.
    """

    def __init__(self, blocks: Iterable[DecoderBlock]) -> None:
        super().__init__()
        blocks = list(blocks)
        width = blocks[0].cross_attention.width
        self.layers = len(blocks)
        self.heads = width.heads
        self.head_dim = width.head_dim
        self.dim = width.dim
        self.to_keys_values = _linear(torch.cat([_keys_values(block.cross_attention) for block in blocks]))

    def project(self, memory: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n projected"]:
        """Return keys and values of all layers and heads before keys are normalised."""
        return self.to_keys_values(memory)

    def arrange(self, projected: Float[Tensor, "batch memory projected"]) -> tuple[Keys, Values]:
        """Return the keys and values of all layers' heads, one layer after the other."""
        parts = projected.view(*projected.shape[:2], self.layers * self.heads, self.head_dim + self.dim)
        keys, values = torch.split(parts, [self.head_dim, self.dim], -1)
        return normalize(keys).permute(0, 2, 3, 1), values.transpose(1, 2)

    def forward(self, memory: Float[Tensor, "batch memory dim"]) -> tuple[Keys, Values]:
        """Return the keys and values that `FoldedBlocks.with_memory` takes."""
        return self.arrange(self.project(memory))


def _linear(weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None = None) -> nn.Linear:
    """Return a layer that owns copies of these weights, which have no gradients."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return layer


def _gain(attention: Attention) -> Float[Tensor, " head_dim"]:
    """Return what normalised queries are multiplied with before they meet normalised keys."""
    scale = attention.width.head_dim**-0.5
    return (attention.query_norm.weight * attention.key_norm.weight * scale).detach()


def _keys_values(attention: Attention) -> Float[Tensor, "projected dim"]:
    """Return the product that gives, for every head, its key and what its value adds to the output."""
    heads = attention.width.heads
    head_dim = attention.width.head_dim
    dim = attention.width.dim
    keys, values = attention.key_value.weight.view(2, heads, head_dim, dim)
    out = attention.out.weight.view(dim, heads, head_dim).transpose(0, 1)
    return torch.cat([keys, out @ values], dim=1).flatten(0, 1)
