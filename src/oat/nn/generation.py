"""Causal sequences in the making: a backbone's outputs position by position, with earlier keys and values kept.

With one row, finding weights in modules, calling these and allocating takes longer than the arithmetic. So a sequence
does this once, when it begins, and its steps are plain functions. No weight is copied: they are the modules' own.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from oat.nn.transformer import Backbone, DecoderBlock

Context = Float[Tensor, "batch tokens dim"]
Rows = Float[Tensor, "batch dim"]
Kept = Float[Tensor, "batch heads length head_dim"]
Step = Callable[[Rows, Float[Tensor, "batch both"], Float[Tensor, "batch heads head_dim"], Kept, Kept], Rows]


class Generation:
    """A sequence of at most `length` positions; the context is projected once, at its beginning.

    Without gradients, and in the precision of the weights even under autocast.
    """

    def __init__(self, backbone: Backbone, context: Context, length: int) -> None:
        width, blocks = backbone.width, list(backbone.layers)
        self._device = context.device.type
        with torch.autocast(self._device, enabled=False):
            self._steps = [_step_of(block, context) for block in blocks]
        self._dim, self._gain = (width.dim,), backbone.norm.weight
        self._cache = context.new_empty(length, len(blocks), len(context), 2, width.heads, width.head_dim)
        self._length = 0

    def step(self, x: Rows) -> Rows:
        """The output of one position more."""
        here, self._length = self._cache[self._length], self._length + 1
        both, key = here.view(*here.shape[:2], -1).unbind(), here[:, :, 0].unbind()
        keys, values = self._cache[: self._length].permute(3, 1, 2, 4, 0, 5)
        with torch.autocast(self._device, enabled=False):
            for step, *cached in zip(self._steps, both, key, keys.unbind(), values.unbind(), strict=True):
                x = step(x, *cached)
            return torch.layer_norm(x, self._dim, self._gain)


def _step_of(block: DecoderBlock, context: Context) -> Step:
    """What `DecoderBlock.forward` does, for one position of every row; `both` is where its key and value are kept."""
    attention, reading, feed_forward = block.self_attention, block.cross_attention, block.feed_forward
    batch, width = len(context), attention.width
    rows, heads = (batch, width.dim), (batch, width.heads, 1, width.head_dim)
    dim, head_dim = (width.dim,), (width.head_dim,)
    self_gain, cross_gain, last_gain = block.self_norm.weight, block.cross_norm.weight, block.feed_forward_norm.weight
    query_gain, key_gain = attention.query_norm.weight, attention.key_norm.weight
    cross_query_gain = reading.query_norm.weight
    query, key_value, out = attention.query.weight.t(), attention.key_value.weight.t(), attention.out.weight.t()
    cross_query, cross_out = reading.query.weight.t(), reading.out.weight.t()
    cross_keys, cross_values = reading.keys_values(context)
    inner, inner_bias = feed_forward.inner.weight.t(), feed_forward.inner.bias
    outer, outer_bias = feed_forward.out.weight.t(), feed_forward.out.bias
    hidden = context.new_empty(batch, inner.shape[1])
    columns = hidden.view(2, -1).t()  # were it contiguous, GELU would be oneDNN's: thrice as slow for so few rows
    normalize, attend, mm, addmm = torch.layer_norm, F.scaled_dot_product_attention, torch.mm, torch.addmm

    def step(x: Tensor, both: Tensor, key: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        normed = normalize(x, dim, self_gain)
        mm(normed, key_value, out=both)
        key.copy_(normalize(key, head_dim, key_gain))
        asked = normalize(mm(normed, query).view(heads), head_dim, query_gain)
        x = addmm(x, attend(asked, keys, values).reshape(rows), out)
        asked = normalize(mm(normalize(x, dim, cross_gain), cross_query).view(heads), head_dim, cross_query_gain)
        x = addmm(x, attend(asked, cross_keys, cross_values).reshape(rows), cross_out)
        addmm(inner_bias, normalize(x, dim, last_gain), inner, out=hidden)
        active = F.gelu(columns).t().view(hidden.shape)
        return addmm(x, active, outer).add_(outer_bias)

    return step
