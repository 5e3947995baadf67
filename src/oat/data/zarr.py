"""diffusion_policy's ReplayBuffer: zarr arrays `data/<key>` over all frames and `meta/episode_ends`.

Layout: https://github.com/real-stanford/diffusion_policy, zarr format 2 (or 3), in a directory or a .zip.
"""

import math
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from oat.data.columns import UINT8, LazyColumn, file_identity, frame_numbers, load_column
from oat.data.episodes import Episodes, Frames
from oat.data.npz import lengths_from_ends
from oat.data.observation_keys import observation_keys
from oat.errors import CorruptDataset, InvalidEpisode, MissingKey, OatError
from oat.io.extras import import_extra

_OBJECT_CODECS = ("pickle", "json2", "vlen", "categorize", "msgpack")
_CHUNK_BYTES = 2 * 2**30  # what is decoded at once; Blosc cannot hold more
_CACHE_BYTES = 128 * 2**20  # of decoded image chunks, per camera


def is_zarr(path: Path) -> bool:
    """Return whether a path is a zarr group of format 2 or 3, or a .zip, which no other format uses."""
    if path.is_dir():
        return (path / ".zgroup").exists() or (path / "zarr.json").exists()
    return path.name.endswith(".zip")


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

    def chunk(self, number: int) -> np.ndarray:
        """Return the frames of one chunk; raise `CorruptDataset` if its file is damaged."""
        rows = self.rows_per_chunk
        with explain_read_errors(self.store, self.name):
            _check_sizes(self.store, self.name, self.array, number)
            return np.asarray(self.array[number * rows : (number + 1) * rows])


@dataclass
class ChunkedImages:
    """Read images that are stored in compressed chunks of frames; the chunks used last stay decoded.

    Float images hold whole numbers 0…255 times `scale`, which is checked for every chunk.
    """

    source: ZarrArray
    shape: tuple[int, ...]
    scale: float
    dtype: np.dtype[Any] = UINT8
    _decoded: OrderedDict[int, np.ndarray] = field(default_factory=OrderedDict, repr=False)

    def __getitem__(self, frames: np.ndarray | slice) -> np.ndarray:
        frames = frame_numbers(frames, self.shape[0])
        out = np.empty((len(frames), *self.shape[1:]), np.uint8)
        chunks, rows = np.divmod(frames, self.source.rows_per_chunk)
        for chunk in np.unique(chunks):
            mine = chunks == chunk
            out[mine] = self._chunk(int(chunk))[rows[mine]]
        return out

    def _chunk(self, chunk: int) -> np.ndarray:
        """Return a decoded chunk, from the cache if it is there."""
        if not self._decoded:
            _check_complete(self.source.store, self.source.name, self.source.array)
        if chunk not in self._decoded:
            self._decoded[chunk] = self._to_bytes(self.source.chunk(chunk))
            while len(self._decoded) > 1 and sum(part.nbytes for part in self._decoded.values()) > _CACHE_BYTES:
                self._decoded.popitem(last=False)
        self._decoded.move_to_end(chunk)
        return self._decoded[chunk]

    def _to_bytes(self, values: np.ndarray) -> np.ndarray:
        if values.dtype == UINT8:
            return values
        if not _are_bytes(values, self.scale):
            raise InvalidEpisode(f"{self.source.store}: {self.source.name} holds values that are not an image's")
        return np.rint(values * np.float32(self.scale)).astype(np.uint8)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoded": OrderedDict()}


def _are_bytes(values: np.ndarray, scale: float) -> bool:
    """Return whether all values times `scale` are whole numbers 0…255, up to the rounding of float32."""
    scaled = values * np.float32(scale)
    return bool((np.abs(scaled - np.rint(scaled)) < 1e-3).all() and scaled.min() >= 0 and scaled.max() <= 255)


def _image_scale(source: ZarrArray) -> float | None:
    """Return 1 for float images 0…255, 255 for 0…1, None for other arrays; the first chunk that tells decides."""
    for number in range(source.num_chunks):
        values = source.chunk(number)
        if values.max() > 1:
            return 1.0 if _are_bytes(values, 1.0) else None
        if not _are_bytes(values, 1.0):  # neither all 0 nor all 1
            return 255.0 if _are_bytes(values, 255.0) else None
    return 1.0


def read_zarr(path: Path) -> Episodes:
    """Read a ReplayBuffer from a directory or a .zip."""
    with explain_read_errors(path, "group"):
        group = open_group(path)
        for key in ("data/action", "meta/episode_ends"):
            if key not in group:
                raise MissingKey(f"{path}: no array {key!r}; a ReplayBuffer has data/action and meta/episode_ends")
        _check_metadata(path, group)
        arrays = {name: a for name, a in sorted(group["data"].arrays()) if a.ndim > 0 and a.dtype.kind in "fiub"}
        if group["meta/episode_ends"].dtype.kind not in "fiu":
            raise CorruptDataset(f"{path}: meta/episode_ends must be numbers, got {group['meta/episode_ends'].dtype}")
        _check_complete(path, "episode_ends", group["meta/episode_ends"])
        ends = np.asarray(group["meta/episode_ends"][:])
    if "action" not in arrays or arrays["action"].ndim != 2:
        raise InvalidEpisode(f"{path}: data/action must be numbers (frames, dimensions)")
    lengths = lengths_from_ends(path, ends, arrays["action"].shape[0])
    return Episodes.from_arrays(
        _column(path, "action"),
        lengths,
        [path.name.split(".")[0]] * len(lengths),
        observations=_observations(path, {name: a for name, a in arrays.items() if name != "action"}),
        source=f"{path} (zarr)",
    )


def _observations(path: Path, arrays: dict[str, Any]) -> dict[str, Frames]:
    scales = {name: _scale(path, name, array) for name, array in arrays.items()}
    keys = observation_keys(path, {name: scale is not None for name, scale in scales.items()})
    observations: dict[str, Frames] = {}
    for name, array in arrays.items():
        scale = scales[name]
        if scale is not None:
            observations[keys[name]] = ChunkedImages(ZarrArray(path, f"data/{name}"), tuple(array.shape), scale)
        else:
            observations[keys[name]] = LazyColumn(_shape(array), partial(_column, path, name))
    return observations


def _scale(path: Path, name: str, array: Any) -> float | None:
    """Return what a colour image's numbers are to be multiplied by to be bytes; None for other arrays."""
    if array.ndim != 4 or array.shape[-1] != 3 or array.dtype.kind not in "fu":
        return None
    return 1.0 if array.dtype == UINT8 else _image_scale(ZarrArray(path, f"data/{name}"))


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


def _check_metadata(path: Path, group: Any) -> None:
    """Raise `CorruptDataset` for codecs that unpickle objects, and for chunks that are absurdly large, unread."""
    for folder in ("data", "meta"):
        for name, array in group[folder].arrays():
            codecs = [*array.filters, *array.compressors, *([array.serializer] if array.serializer else [])]
            found = {str(getattr(codec, "codec_id", type(codec).__name__)).lower() for codec in codecs}
            if refused := sorted(each for each in found if any(word in each for word in _OBJECT_CODECS)):
                raise CorruptDataset(f"{path}: {folder}/{name} is packed by {refused[0]}, which is not allowed")
            if math.prod(array.chunks) * array.dtype.itemsize > _CHUNK_BYTES:
                raise CorruptDataset(f"{path}: a chunk of {folder}/{name} would have {array.chunks} numbers")


def _check_complete(path: Path, name: str, array: Any) -> None:
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
            continue  # `_check_complete` has decided on it
        with chunk.open("rb") as file:
            header = file.read(16)
        announced = int.from_bytes(header[12:16], "little")  # bytes 12 … 15 hold the compressed size
        if len(header) < 16 or chunk.stat().st_size < announced:
            raise CorruptDataset(f"{chunk} is truncated: {chunk.stat().st_size} of {announced} bytes")


def _shape(array: Any) -> tuple[int, ...]:
    """Return an array's shape with at least one number per frame."""
    return tuple(array.shape) if array.ndim > 1 else (array.shape[0], 1)


def _column(path: Path, name: str) -> np.ndarray:
    source = ZarrArray(path, f"data/{name}")
    shape = _shape(source.array)
    _check_complete(path, name, source.array)
    stored = [f for f in sorted((path / "data" / name).rglob("*")) if f.is_file()] if path.is_dir() else [path]
    blocks = (source.chunk(number).reshape(-1, *shape[1:]) for number in range(source.num_chunks))
    return load_column(name, shape, lambda: blocks, stored)
