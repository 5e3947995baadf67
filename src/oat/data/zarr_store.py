"""One zarr store: its group, its arrays, and what makes reading them safe."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from oat.data.columns import file_identity
from oat.errors import CorruptDataset, OatError
from oat.io.extras import import_extra


@dataclass(frozen=True)
class ZarrArray:
    """Name one array of a store, which every process opens for itself: a .zip's file position must not cross a fork."""

    store: Path
    name: str

    @property
    def array(self) -> Any:
        """Return zarr's own array, from a store that stays open in this process."""
        return open_group(self.store)[self.name]

    @property
    def rows_per_chunk(self) -> int:
        """Return how many frames a chunk holds; the last one may hold fewer."""
        return int(self.array.chunks[0])

    @property
    def num_chunks(self) -> int:
        """Return the number of chunks along the frames."""
        return int(self.array.cdata_shape[0])

    @property
    def files(self) -> list[Path]:
        """Return the files that hold the array: when one of them changes, what was decoded from them is stale."""
        if self.store.is_file():
            return [self.store]
        return [file for file in sorted((self.store / self.name).rglob("*")) if file.is_file()]

    def chunk(self, number: int) -> np.ndarray:
        """Return the frames of one chunk; raise `CorruptDataset` if its file is damaged."""
        rows = self.rows_per_chunk
        with explain_read_errors(self.store, self.name):
            _check_sizes(self.store, self.name, self.array, number)
            return np.asarray(self.array[number * rows : (number + 1) * rows])


@contextmanager
def explain_read_errors(path: Path, name: str) -> Iterator[None]:
    """Raise `CorruptDataset` for whatever zarr and its codecs raise while they read damaged files."""
    try:
        yield
    except OatError:
        raise
    except Exception as error:  # the codecs raise RuntimeError, ValueError, zlib.error, BadZipFile, …
        raise CorruptDataset(f"{path}: cannot read {name} ({type(error).__name__}: {error})") from error


def open_group(path: Path) -> Any:
    """Return a store's group, which stays open between reads, one per process."""
    root = next((path / name for name in ("zarr.json", ".zgroup") if (path / name).exists()), path)
    return _open_group(path, file_identity(root), os.getpid())


@lru_cache(maxsize=16)
def _open_group(path: Path, identity: tuple[int, int, int], process: int) -> Any:
    zarr = import_extra("zarr", "formats")
    return zarr.open_group(zarr.storage.ZipStore(path, mode="r") if path.is_file() else path, mode="r")


def check_complete(path: Path, name: str, array: Any) -> None:
    """Raise `CorruptDataset` if chunks are absent: zarr reads them as the fill value, so lost files would be zeros."""
    found = array.nchunks_initialized
    expected = array.nchunks
    if found != expected:
        raise CorruptDataset(
            f"{path}: {name} has only {found} of its {expected} chunks. If the others were left out because they hold "
            f"nothing but {array.fill_value}, write the array again with write_empty_chunks=True"
        )


def _check_sizes(path: Path, name: str, array: Any, row_chunk: int) -> None:
    """Raise `CorruptDataset` for a truncated chunk: Blosc would read past its end and return whatever lies there."""
    if path.is_file() or not any("blosc" in type(codec).__name__.lower() for codec in array.compressors):
        return  # a .zip has checksums, and the other codecs notice
    for others in product(*(range(count) for count in array.cdata_shape[1:])):
        chunk = path / name / array.metadata.encode_chunk_key((row_chunk, *others))
        if not chunk.exists():
            continue  # `check_complete` has decided on it
        with chunk.open("rb") as file:
            header = file.read(16)
        announced = int.from_bytes(header[12:16], "little")  # bytes 12 … 15 hold the compressed size
        if len(header) < 16 or chunk.stat().st_size < announced:
            raise CorruptDataset(f"{chunk} is truncated: {chunk.stat().st_size} of {announced} bytes")
