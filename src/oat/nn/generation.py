"""Causal sequences in the making: a backbone's outputs position by position, with earlier keys and values kept.

With one row, finding weights in modules and calling these takes longer than the arithmetic. So a sequence finds them
once, when it begins: its steps run the blocks' own definition on plain objects. No weight is copied.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from oat.nn.cache import KeyValueCache
from oat.nn.transformer import Backbone, DecoderBlock, Linear, normalize

Rows = Float[Tensor, "batch dim"]


class Generation:
    """A sequence of at most `length` positions; the context is projected once, at its beginning.

    It has no gradients, and the precision of the weights even under autocast.
    """

    def __init__(self, backbone: Backbone, context: Float[Tensor, "batch tokens dim"], length: int) -> None:
        self._device = context.device.type
        self._norm: nn.LayerNorm = flatten(backbone.norm)
        self._blocks: list[DecoderBlock] = [flatten(block) for block in backbone.layers]
        self.cache = KeyValueCache(backbone.width, len(self._blocks), length, context)
        with torch.autocast(self._device, enabled=False):
            self._memories = [block.cross_attention.keys_values(context) for block in backbone.layers]

    def step(self, x: Rows) -> Rows:
        """Return the output of one position more."""
        with torch.autocast(self._device, enabled=False):
            for block, memory, place in zip(self._blocks, self._memories, self.cache.next_position(), strict=True):
                x = block.extend(x, memory, place)
            return normalize(self._norm, x)

    def repeat(self, times: int) -> None:
        """Let every row be several, which have the same past and context, one after the other."""
        self.cache.repeat(times)
        self._memories = [
            (keys.repeat_interleave(times, 0), values.repeat_interleave(times, 0)) for keys, values in self._memories
        ]


def flatten(module: nn.Module) -> Any:
    """Return an object of the module's class, with its methods, whose parameters and parts are plain attributes.

    A module looks these up in dictionaries of its own after Python's lookup has failed, every time.
    """
    if isinstance(module, Linear):
        return RowLinear(module)
    flat = object.__new__(type(module))
    attributes = vars(flat)
    attributes.update(vars(module))
    attributes.update(module._parameters)
    attributes.update({name: flatten(part) for name, part in module._modules.items() if part is not None})
    return flat


class RowLinear:
    """What a `Linear` does, for rows: in one call each, with the weights transposed once."""

    def __init__(self, layer: Linear) -> None:
        self.weight = layer.weight.t()
        self.bias = layer.bias

    def project(self, x: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch outputs"]:
        """Return the product of the weights with x, plus the bias if there is one."""
        return torch.mm(x, self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def add_to(self, x: Rows, y: Float[Tensor, "batch inputs"]) -> Rows:
        """Return x plus what the layer makes of y."""
        added = torch.addmm(x, y, self.weight)
        return added if self.bias is None else added.add_(self.bias)
