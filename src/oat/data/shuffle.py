"""Random orders without a table: a keyed permutation of 0 … n-1 that maps any position in O(1).

A Feistel network permutes the numbers (l, r) with l < a, r < b, where a·b is just above n; the few positions that land
on n or above are mapped again until they land below (cycle walking), which keeps it a permutation. Nothing of the
set's size is stored, and a stream of batches resumes at any step.
"""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt64

_ROUNDS = 6  # of the Feistel network; changing any constant here changes the order of every training run
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, as in splitmix64
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def hash64(values: UInt64[np.ndarray, "*n"]) -> UInt64[np.ndarray, "*n"]:
    """Mix the bits of each value (the splitmix64 finaliser, wrapping around 2^64)."""
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


def derive_key(*parts: int | str) -> int:
    """Return one 64-bit key for several numbers and names, such as (seed, epoch)."""
    key = np.array([_GOLDEN], np.uint64)
    for part in parts:
        number = int.from_bytes(hashlib.sha256(part.encode()).digest()[:8], "little") if isinstance(part, str) else part
        key = hash64(key + np.uint64(number % 2**64))
    return int(key[0])


def derive_keys(seed: int, numbers: Int64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """Return what `derive_key(seed, number)` gives for each number, all at once."""
    return hash64(np.uint64(derive_key(seed)) + numbers.astype(np.uint64))


@dataclass(frozen=True)
class Permutation:
    """Permute 0 … size-1 pseudo-randomly, as the key says, or one key for each position."""

    size: int
    key: int | UInt64[np.ndarray, " n"]

    def __call__(self, positions: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Return where each position goes; positions must lie in 0 … size-1."""
        keys = np.broadcast_to(np.asarray(self.key, np.uint64), positions.shape)
        values = self._feistel(positions.astype(np.uint64), keys)
        while (outside := np.flatnonzero(values >= np.uint64(self.size))).size:
            values[outside] = self._feistel(values[outside], keys[outside])
        return values.astype(np.int64)

    def _feistel(self, values: UInt64[np.ndarray, " n"], keys: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
        """Add a hash of one half to the other, in turn: each such step is a bijection."""
        # As near to a square as possible: both halves are then long, and a·b exceeds the size by little.
        rows = np.uint64(max(1, math.isqrt(self.size)))
        columns = np.uint64(-(-self.size // int(rows)))
        left, right = np.divmod(values, columns)
        for step in range(0, _ROUNDS, 2):
            left = (left + hash64(right + keys + _round_constant(step)) % rows) % rows
            right = (right + hash64(left + keys + _round_constant(step + 1)) % columns) % columns
        return left * columns + right


def _round_constant(step: int) -> np.uint64:
    return np.uint64((step + 1) * _GOLDEN % 2**64)
