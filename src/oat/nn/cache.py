"""The keys and values of earlier positions, kept while a sequence is generated position by position."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int64
from torch import Tensor

from oat.nn.width import Width

Heads = Float[Tensor, "batch heads _ head_dim"]
KeysValues = tuple[Float[Tensor, "batch heads k head_dim"], Float[Tensor, "batch heads k head_dim"]]


@runtime_checkable
class LayerCache(Protocol):
    """Hold what one layer's self-attention has seen so far."""

    def append(self, key: Heads, value: Heads) -> KeysValues:
        """Keep one more position's key and value, and return those of all positions up to it."""
        ...


class CachePlace(NamedTuple):
    """One layer's part of a `KeyValueCache` at one position, as views of its memory."""

    key: Heads
    value: Heads
    keys: Heads
    values: Heads

    def append(self, key: Heads, value: Heads) -> KeysValues:
        """Write this position's key and value to its place, and return views of all up to it."""
        self.key.copy_(key)
        self.value.copy_(value)
        return self.keys, self.values


class KeyValueCache:
    """Keep the keys and values of all layers in memory that is allocated once, of the device and type of `like`."""

    def __init__(self, width: Width, layers: int, length: int, like: Float[Tensor, "batch ..."]) -> None:
        self.memory = like.new_empty(2, layers, len(like), width.heads, length, width.head_dim)
        self.length = 0

    def repeat(self, times: int) -> None:
        """Keep as much for several rows in place of each, one after the other."""
        self.memory = self.memory.repeat_interleave(times, 2)

    def take(self, rows: Int64[Tensor, " batch"]) -> None:
        """Keep for each row what another has."""
        self.memory = self.memory.index_select(2, rows)

    def next_position(self) -> Iterator[CachePlace]:
        """Return every layer's part of the cache at one position more."""
        here = self.memory.narrow(-2, self.length, 1)
        self.length += 1
        seen = self.memory.narrow(-2, 0, self.length)
        # The views of all layers come from four calls; sliced one by one they would take longer than the attention.
        parts = (pair.unbind() for half in (here, seen) for pair in half.unbind())
        return map(CachePlace, *parts)
