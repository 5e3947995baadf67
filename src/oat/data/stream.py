"""Endless shuffled batches for training: any batch is found by its number, so that a stream resumes anywhere."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64

from oat.data.chunks import Batch
from oat.errors import InvalidOption

_STREAM_BLOCK = 16384  # positions permuted at a time: many numpy calls on few elements would dominate


@runtime_checkable
class Source(Protocol):
    """Describe a source that `stream` can draw from: the windows of one data set, or a mixture of several."""

    tasks: tuple[str, ...]

    def __len__(self) -> int:
        """Return how many positions of the stream one epoch has."""
        ...

    def shuffle(self, positions: Int64[np.ndarray, " n"], seed: int) -> Int64[np.ndarray, " n"]:
        """Return the windows at these positions of an endless stream that visits every window once per epoch."""
        ...

    def __getitem__(self, windows: Int64[np.ndarray, " n"]) -> Batch:
        """Return the windows with these numbers as one batch."""
        ...

    def fingerprint(self) -> str:
        """Return text that differs between sources of different demonstrations."""
        ...


def stream(
    source: Source, batch_size: int, seed: int, start: int = 0, rank: int = 0, world_size: int = 1
) -> Iterator[Batch]:
    """Yield shuffled batches without end, from batch number `start` on; process `rank` gets its share of each."""
    return (source[windows] for windows in window_stream(source, batch_size, seed, start, rank, world_size))


def window_stream(
    source: Source, batch_size: int, seed: int, start: int = 0, rank: int = 0, world_size: int = 1
) -> Iterator[Int64[np.ndarray, " share"]]:
    """Yield the window numbers of each batch of `stream`.

    Batch b of the whole job covers positions b·B … (b+1)·B - 1, so neither a restart nor the number of processes
    changes what is seen.
    """
    if batch_size < 1 or batch_size % world_size:
        raise InvalidOption(f"a batch of {batch_size} cannot be shared by {world_size} processes")
    if not 0 <= rank < world_size or start < 0:
        raise InvalidOption(f"rank must be in 0…{world_size - 1} and start ≥ 0, got {rank} and {start}")
    # A function of its own, so that the checks above run at once and not at the first batch.
    return _window_blocks(source, batch_size, seed, start, rank, batch_size // world_size)


def _window_blocks(
    source: Source, batch_size: int, seed: int, start: int, rank: int, share: int
) -> Iterator[Int64[np.ndarray, " share"]]:
    """Yield the windows of many batches that were permuted at once."""
    batches = max(1, _STREAM_BLOCK // share)
    while True:
        firsts = np.arange(start, start + batches) * batch_size + rank * share
        positions = firsts[:, None] + np.arange(share)
        yield from source.shuffle(positions.reshape(-1), seed).reshape(batches, share)
        start += batches
