"""diffusion_policy's ReplayBuffer: zarr arrays `data/<key>` over all frames and `meta/episode_ends`.

Layout: https://github.com/real-stanford/diffusion_policy, zarr format 2 (or 3), in a directory or a .zip.
"""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from oat.data.columns import UINT8, LazyColumn, load_column
from oat.data.episodes import Episodes, Frames
from oat.data.npz import lengths_from_ends
from oat.data.observation_keys import observation_keys
from oat.data.zarr_images import ChunkedImages, image_scale
from oat.data.zarr_store import ZarrArray, check_complete, explain_read_errors, open_group
from oat.errors import CorruptDataset, InvalidEpisode, MissingKey

_OBJECT_CODECS = ("pickle", "json2", "vlen", "categorize", "msgpack")
_CHUNK_BYTES = 2 * 2**30  # what is decoded at once; Blosc cannot hold more


def is_zarr(path: Path) -> bool:
    """Return whether a path is a zarr group of format 2 or 3, or a .zip, which no other format uses."""
    if path.is_dir():
        return (path / ".zgroup").exists() or (path / "zarr.json").exists()
    return path.name.endswith(".zip")


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
        check_complete(path, "episode_ends", group["meta/episode_ends"])
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
    return 1.0 if array.dtype == UINT8 else image_scale(ZarrArray(path, f"data/{name}"))


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


def _shape(array: Any) -> tuple[int, ...]:
    """Return an array's shape with at least one number per frame."""
    return tuple(array.shape) if array.ndim > 1 else (array.shape[0], 1)


def _column(path: Path, name: str) -> np.ndarray:
    source = ZarrArray(path, f"data/{name}")
    shape = _shape(source.array)
    check_complete(path, name, source.array)
    blocks = (source.chunk(number).reshape(-1, *shape[1:]) for number in range(source.num_chunks))
    return load_column(name, shape, lambda: blocks, source.files)
