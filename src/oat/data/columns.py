"""One contiguous array out of a stored column: in memory when small, memory-mapped when large.

Parquet, HDF5 and zarr store columns in compressed pieces that cannot be mapped. A large column is therefore decoded
once into a cache file (`$OAT_CACHE_DIR`, by default `~/.cache/oat`), named after the source files' paths, sizes and
modification times, and mapped from there ever after; all processes on a machine share its pages.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from oat.errors import CorruptDataset, WriteFailed
from oat.io.atomic import staged_file
from oat.io.notes import note

FLOAT32 = np.dtype(np.float32)
UINT8 = np.dtype(np.uint8)

MAP_ABOVE_BYTES = 64 * 2**20
"""Columns larger than this are memory-mapped instead of held in memory."""


def cache_directory() -> Path:
    """Return the folder in which decoded columns are kept; deleting it is always safe."""
    return Path(os.environ.get("OAT_CACHE_DIR") or Path.home() / ".cache" / "oat") / "columns"


def load_column(
    name: str,
    shape: tuple[int, ...],
    blocks: Callable[[], Iterable[np.ndarray]],
    sources: Sequence[Path],
    dtype: np.dtype[Any] = FLOAT32,
) -> np.ndarray:
    """Return the blocks joined along their first axis as one read-only array of `shape`, of numbers or of bytes.

    `sources` are the files that the blocks come from: when one of them changes, a cached column is decoded anew.
    """
    if math.prod(shape) * dtype.itemsize <= MAP_ABOVE_BYTES:
        array = np.empty(shape, dtype)
        _fill(name, array, blocks())
        array.flags.writeable = False
        return array
    cached = cache_directory() / f"{_fingerprint(name, sources)}.npy"
    column = map_cached(cached, dtype, shape)
    if column is None:
        _write_cache(cached, name, shape, blocks(), dtype)
        column = map_cached(cached, dtype, shape)
        assert column is not None, "what was just written is there"
    return column


def map_cached(file: Path, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> np.ndarray | None:
    """Map an array that was kept in a file; None if it has to be made, or made again because the file is damaged.

    A length that is None may be any. Damage is told, because making large arrays again takes a while.
    """
    try:
        array = np.asarray(np.load(file, mmap_mode="r"))  # a plain view of the map: np.memmap's own indexing is slower
    except FileNotFoundError:
        return None
    except (ValueError, EOFError, OSError) as error:
        note(f"{file} is damaged ({error}); it is made again")
        return None
    fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits:
        note(f"{file} is damaged (it holds {array.dtype} of shape {array.shape}); it is made again")
        return None
    return array


def _write_cache(
    cached: Path, name: str, shape: tuple[int, ...], blocks: Iterable[np.ndarray], dtype: np.dtype[Any]
) -> None:
    """Write a column to its cache file as the blocks arrive."""
    try:
        # Not durable: the column can be decoded again at any time, and waiting for the disk takes long.
        with staged_file(cached, durable=False) as staging, staging.open("wb") as file:
            little = dtype.newbyteorder("<")
            header = {"descr": np.lib.format.dtype_to_descr(little), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_2_0(file, header)
            # Written, not filled through a map: a full disk is an error from a write, but a bus error from a map.
            for block in _checked(name, shape, blocks):
                file.write(np.ascontiguousarray(block, little).data)
    except WriteFailed as error:
        raise WriteFailed(f"{error} Decoded columns are kept there; OAT_CACHE_DIR chooses another place.") from error


def _fill(name: str, array: np.ndarray, blocks: Iterable[np.ndarray]) -> None:
    row = 0
    for block in _checked(name, array.shape, blocks):
        array[row : row + len(block)] = block
        row += len(block)


def _checked(name: str, shape: tuple[int, ...], blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the blocks; raise `CorruptDataset` unless they hold numbers and together are of `shape`."""
    row = 0
    for block in blocks:
        if block.dtype.kind not in "fiub":
            raise CorruptDataset(f"{name}: must be numbers, got {block.dtype} at row {row}")
        if row + len(block) > shape[0] or block.shape[1:] != shape[1:]:
            raise CorruptDataset(f"{name}: rows of shape {block.shape} at row {row} do not fit into {shape}")
        row += len(block)
        yield block
    if row != shape[0]:
        raise CorruptDataset(f"{name}: found {row} of {shape[0]} rows")


def frame_numbers(frames: np.ndarray | slice, total: int) -> np.ndarray:
    """Return the numbers of frames that were given so, or as a slice of all."""
    return np.arange(*frames.indices(total)) if isinstance(frames, slice) else frames


def _fingerprint(name: str, sources: Sequence[Path]) -> str:
    files = [(str(path.resolve()), *file_identity(path)[1:]) for path in sources]
    return hashlib.sha256(json.dumps([name, files]).encode()).hexdigest()[:32]


def file_identity(path: Path) -> tuple[int, int, int]:
    """Return a value that changes with the file, so that caches keyed by it never serve a file that was replaced."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass
class LazyColumn:
    """Decode a vector-valued observation key, whole, the first time that it is indexed."""

    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]
    dtype: np.dtype[Any] = FLOAT32

    @cached_property
    def array(self) -> np.ndarray:
        """Return the decoded column, which stays in memory or mapped."""
        return self.load()

    def __getitem__(self, frames: np.ndarray | slice) -> np.ndarray:
        return self.array[frames]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the decoded array: another process decodes or maps it for itself."""
        return {key: value for key, value in self.__dict__.items() if key != "array"}


@dataclass(frozen=True)
class MappedArray:
    """Say where a memory-mapped array lies, so that it can be sent to another process without its contents."""

    file: str
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def find(cls, array: np.ndarray) -> "MappedArray | None":
        """Return the place of a contiguous array inside the file it is mapped from; None if it is not mapped."""
        base: Any = array
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base
        if not isinstance(base, np.memmap) or base.filename is None or not array.flags.c_contiguous:
            return None
        while isinstance(base.base, np.memmap):  # a slice of a map repeats the map's offset, so start from the map
            base = base.base
        offset = base.offset + array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return cls(str(base.filename), offset, array.shape, array.dtype.str)

    def open(self) -> np.ndarray:
        """Map the array again, read-only, in whichever process this is."""
        return np.asarray(np.memmap(self.file, np.dtype(self.dtype), "r", self.offset, self.shape))


def row_blocks(array: Any, rows: int = 65536) -> Iterator[np.ndarray]:
    """Yield consecutive slices of an array-like, so that converting a large one never doubles its memory."""
    for start in range(0, len(array), rows):
        yield np.asarray(array[start : start + rows])
