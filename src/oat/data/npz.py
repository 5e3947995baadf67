"""Plain numpy archives: `actions` (N, D), `episode_ends` (E,), optionally `tasks` (E,), `fps` and observations (N, …).

Members that are not compressed (`np.savez`) are memory-mapped where they lie inside the archive.
"""

import zipfile
from pathlib import Path

import numpy as np

from oat.data.columns import load_column, row_blocks
from oat.data.episodes import Episodes, observation_key
from oat.errors import CorruptDataset, InvalidEpisode, MissingKey

_NOT_OBSERVATIONS = {"actions", "episode_ends", "tasks", "fps"}


def read_npz(path: Path) -> Episodes:
    """Read an archive written by `np.savez` or `np.savez_compressed`."""
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {Path(info.filename).stem: _member(path, archive, info) for info in archive.infolist()}
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as error:
        raise CorruptDataset(f"{path}: not a readable .npz archive ({error})") from error
    for key in ("actions", "episode_ends"):
        if key not in arrays:
            raise MissingKey(f"{path}: no array {key!r}; it has {sorted(arrays)}")
    actions, ends = arrays["actions"], arrays["episode_ends"].astype(np.int64)
    if actions.ndim != 2:
        raise InvalidEpisode(f"{path}: actions must be (frames, dimensions), got {actions.shape}")
    if ends.ndim != 1 or len(ends) == 0 or (np.diff(ends, prepend=0) < 0).any() or ends[-1] != len(actions):
        raise InvalidEpisode(f"{path}: episode_ends must increase up to {len(actions)} (the frames), got {ends[-5:]}")
    observations = {
        observation_key(name, array.ndim == 4): _typed(path, name, array)
        for name, array in arrays.items()
        if name not in _NOT_OBSERVATIONS
    }
    tasks = [str(task) for task in arrays["tasks"]] if "tasks" in arrays else [path.stem] * len(ends)
    if len(tasks) != len(ends):
        raise InvalidEpisode(f"{path}: {len(tasks)} tasks for {len(ends)} episodes")
    return Episodes.from_arrays(
        _typed(path, "actions", actions),
        np.diff(ends, prepend=0),
        tasks,
        observations=observations,
        fps=float(arrays["fps"]) if "fps" in arrays else None,
        source=f"{path} (npz)",
    )


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """One array of the archive, mapped when it is stored uncompressed."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = read_header(file)
        header_bytes = file.tell()
        if info.compress_type != zipfile.ZIP_STORED or fortran_order or dtype.hasobject or 0 in shape or shape == ():
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)
    with path.open("rb") as raw:
        raw.seek(info.header_offset + 26)  # the local header's own name and extra lengths may differ from the index's
        name_and_extra = int.from_bytes(raw.read(2), "little") + int.from_bytes(raw.read(2), "little")
    offset = info.header_offset + 30 + name_and_extra + header_bytes
    return np.asarray(np.memmap(path, dtype, "r", offset, shape))


def _typed(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """Images as uint8, everything else as float32, without a copy where it is so already."""
    if array.ndim == 4:
        if array.dtype != np.uint8:
            raise InvalidEpisode(f"{path}: images {name!r} must be uint8, got {array.dtype}")
        return array
    if array.dtype == np.float32:
        return array
    rows = array.reshape(len(array), -1) if array.ndim == 1 else array
    return load_column(name, rows.shape, lambda: row_blocks(rows), [path])
