"""diffusion_policy's ReplayBuffer: zarr arrays `data/<key>` over all frames and `meta/episode_ends`.

Layout: https://github.com/real-stanford/diffusion_policy, zarr format 2 (or 3), in a directory or a .zip.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from oat.data.columns import LazyColumn, load_column
from oat.data.episodes import UINT8, Episodes, Frames, observation_key
from oat.errors import CorruptDataset, InvalidEpisode, MissingKey, OatError
from oat.extras import import_extra


def is_zarr(path: Path) -> bool:
    if path.is_dir():
        return (path / ".zgroup").exists() or (path / "zarr.json").exists()
    return path.name.endswith(".zip")


@dataclass
class ChunkedImages:
    """Images stored in compressed chunks of frames; the chunks used last stay decoded."""

    array: Any
    source: Path
    name: str
    kept_chunks: int = 4
    _decoded: OrderedDict[int, np.ndarray] = field(default_factory=OrderedDict, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return UINT8

    def __getitem__(self, frames: np.ndarray) -> np.ndarray:
        out = np.empty((len(frames), *self.shape[1:]), np.uint8)
        chunks = frames // self.array.chunks[0]
        for chunk in np.unique(chunks):
            mine = chunks == chunk
            out[mine] = self._chunk(int(chunk))[frames[mine] % self.array.chunks[0]]
        return out

    def _chunk(self, chunk: int) -> np.ndarray:
        if chunk not in self._decoded:
            rows = self.array.chunks[0]
            with explain_read_errors(self.source, self.name):
                _check_sizes(self.source, self.name, self.array, chunk)
                values = self.array[chunk * rows : (chunk + 1) * rows]
            self._decoded[chunk] = self._to_bytes(values)
            if len(self._decoded) > self.kept_chunks:
                self._decoded.popitem(last=False)
        self._decoded.move_to_end(chunk)
        return self._decoded[chunk]

    @cached_property
    def _scale(self) -> float:
        """Float images are 0…255 or 0…1, which the first chunk tells."""
        return 255.0 if float(np.max(self.array[: self.array.chunks[0]])) <= 1.0 else 1.0

    def _to_bytes(self, values: np.ndarray) -> np.ndarray:
        if values.dtype == np.uint8:
            return values
        return np.clip(np.rint(values * np.float32(self._scale)), 0, 255).astype(np.uint8)


def read_zarr(path: Path) -> Episodes:
    """Read a ReplayBuffer from a directory or a .zip."""
    zarr = import_extra("zarr", "formats")
    with explain_read_errors(path, "group"):
        group = zarr.open_group(zarr.storage.ZipStore(path, mode="r") if path.is_file() else path, mode="r")
        for key in ("data/action", "meta/episode_ends"):
            if key not in group:
                raise MissingKey(f"{path}: no array {key!r}; a ReplayBuffer has data/action and meta/episode_ends")
        arrays = dict(sorted(group["data"].arrays()))
        for name, array in {**arrays, "meta/episode_ends": group["meta/episode_ends"]}.items():
            _check_complete(path, name, array)
        ends = np.asarray(group["meta/episode_ends"][:], np.int64)
    action = arrays.pop("action")
    if action.ndim != 2:
        raise InvalidEpisode(f"{path}: data/action must be (frames, dimensions), got {action.shape}")
    if len(ends) == 0 or (np.diff(ends, prepend=0) < 0).any() or ends[-1] != action.shape[0]:
        raise InvalidEpisode(f"{path}: meta/episode_ends must increase up to {action.shape[0]} frames, got {ends[-5:]}")
    observations: dict[str, Frames] = {}
    for name, array in arrays.items():
        if array.ndim == 4:
            observations[observation_key(name, True)] = ChunkedImages(array, path, name)
        elif array.dtype.kind in "fiub":
            shape = tuple(array.shape) if array.ndim > 1 else (array.shape[0], 1)
            observations[observation_key(name, False)] = LazyColumn(shape, partial(_column, path, name, array))
    task = path.name.split(".")[0]
    return Episodes.from_arrays(
        _column(path, "action", action),
        np.diff(ends, prepend=0),
        [task] * len(ends),
        observations=observations,
        source=f"{path} (zarr)",
    )


@contextmanager
def explain_read_errors(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except OatError:
        raise
    except Exception as error:  # the codecs raise RuntimeError, ValueError, zlib.error, BadZipFile, …
        raise CorruptDataset(f"{path}: cannot read {name} ({type(error).__name__}: {error})") from error


def _check_complete(path: Path, name: str, array: Any) -> None:
    """zarr reads an absent chunk as zeros; here it is an error."""
    if array.nchunks_initialized != array.nchunks:
        raise CorruptDataset(f"{path}: {name} has only {array.nchunks_initialized} of its {array.nchunks} chunks")


def _check_sizes(path: Path, name: str, array: Any, row_chunk: int) -> None:
    """Blosc reads past the end of a truncated chunk and returns whatever lies there, so compare sizes first."""
    if path.is_file() or not any("blosc" in type(codec).__name__.lower() for codec in array.compressors):
        return  # a .zip has checksums, and the other codecs notice
    for others in product(*(range(count) for count in array.cdata_shape[1:])):
        chunk = path / "data" / name / array.metadata.encode_chunk_key((row_chunk, *others))
        with chunk.open("rb") as file:
            header = file.read(16)
        announced = int.from_bytes(header[12:16], "little")  # bytes 12 … 15 hold the compressed size
        if len(header) < 16 or chunk.stat().st_size < announced:
            raise CorruptDataset(f"{chunk} is truncated: {chunk.stat().st_size} of {announced} bytes")


def _column(path: Path, name: str, array: Any) -> np.ndarray:
    shape = tuple(array.shape) if array.ndim > 1 else (array.shape[0], 1)

    def blocks() -> Iterator[np.ndarray]:
        rows = array.chunks[0]
        for chunk in range(array.cdata_shape[0]):
            with explain_read_errors(path, name):
                _check_sizes(path, name, array, chunk)
                yield np.asarray(array[chunk * rows : (chunk + 1) * rows]).reshape(-1, *shape[1:])

    stored = [f for f in sorted((path / "data" / name).rglob("*")) if f.is_file()] if path.is_dir() else [path]
    return load_column(name, shape, blocks, stored)
