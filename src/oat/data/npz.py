"""Plain numpy archives: `actions` (N, D), `episode_ends` (E,), optionally `tasks` (E,), `fps` and observations (N, …).

Members that are not compressed (`np.savez`) are memory-mapped where they lie inside the archive. A member `obs/pos` is
read as `obs.pos`, because LeRobot's feature names have no slash.
"""

import math
import zipfile
import zlib
from pathlib import Path

import numpy as np

from oat.data.columns import load_column, row_blocks
from oat.data.episodes import Episodes, is_image
from oat.data.observation_keys import observation_keys, refuse_repeated
from oat.data.verified import remember_verified, was_verified
from oat.errors import CorruptDataset, InvalidEpisode, MissingKey

_BOMB_BYTES = 256 * 2**20
_BOMB_RATIO = 200  # images of one colour shrink to a 200th; what shrinks more holds nothing
_NOT_OBSERVATIONS = {"actions", "episode_ends", "tasks", "fps"}
# MemoryError and SyntaxError: of headers that describe anything, or are no Python literal.
_DAMAGED = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, RuntimeError, MemoryError, SyntaxError)


def is_npz(path: Path) -> bool:
    """Return whether a path is a numpy archive, judged by the suffix."""
    return path.suffix == ".npz"


def read_npz(path: Path) -> Episodes:
    """Read an archive written by `np.savez` or `np.savez_compressed`."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info: info.filename.removesuffix(".npy").replace("/", ".") for info in archive.infolist()}
            refuse_repeated(path, members.values())
            arrays = {name: _member(path, archive, info) for info, name in members.items()}
            _check_sums(path, archive)
    except _DAMAGED as error:
        raise CorruptDataset(f"{path}: not a readable .npz archive ({error})") from error
    for key in ("actions", "episode_ends"):
        if key not in arrays:
            raise MissingKey(f"{path}: no array {key!r}; it has {sorted(arrays)}")
    actions = arrays["actions"]
    if actions.ndim != 2 or actions.dtype.kind not in "fiub":
        raise InvalidEpisode(
            f"{path}: actions must be numbers (frames, dimensions), got {actions.dtype} {actions.shape}"
        )
    lengths = lengths_from_ends(path, arrays["episode_ends"], len(actions))
    # Anything else with numbers per frame is taken for an observation; text and scalars are not.
    extras = {
        name: array
        for name, array in arrays.items()
        if name not in _NOT_OBSERVATIONS and array.ndim > 0 and array.dtype.kind in "fiub"
    }
    keys = observation_keys(path, {name: is_image(array) for name, array in extras.items()})
    return Episodes.from_arrays(
        _typed(path, "actions", actions),
        lengths,
        _tasks(path, arrays, len(lengths)),
        observations={keys[name]: _typed(path, name, array) for name, array in extras.items()},
        fps=_fps(path, arrays["fps"]) if "fps" in arrays else None,
        source=f"{path} (npz)",
    )


def lengths_from_ends(path: Path, ends: np.ndarray, frames: int) -> np.ndarray:
    """Return episode lengths from the index after each episode's last frame; raise if these cannot be such indices."""
    # Whole numbers are accepted in any type, also as floats.
    whole = ends.ndim == 1 and len(ends) > 0 and ends.dtype.kind in "fiu" and (ends == np.floor(ends)).all()
    if not whole or (np.diff(ends, prepend=0) < 0).any() or ends[-1] != frames:
        raise InvalidEpisode(
            f"{path}: episode_ends must increase up to {frames} (the frames), "
            f"got {ends.dtype} {ends.shape} with {np.ravel(ends)[-5:]}"
        )
    return np.diff(ends.astype(np.int64), prepend=0)


def _fps(path: Path, fps: np.ndarray) -> float:
    """Return the control frequency, which may be stored as a scalar or as an array of one number."""
    if fps.size != 1 or fps.dtype.kind not in "fiu" or not 0 < fps.item() < float("inf"):
        raise CorruptDataset(f"{path}: fps must be one positive number, got {np.ravel(fps)[:5]}")
    return float(fps.item())


def _tasks(path: Path, arrays: dict[str, np.ndarray], episodes: int) -> list[str]:
    """Return one task string per episode; the archive has as many, or one for all, or none for the file's name."""
    given = np.ravel(arrays["tasks"]).tolist() if "tasks" in arrays else [path.stem]
    try:
        tasks = [task.decode() if isinstance(task, bytes) else str(task) for task in given]
    except UnicodeDecodeError as error:
        raise CorruptDataset(f"{path}: tasks must be text in UTF-8 ({error})") from error
    if len(tasks) not in (1, episodes):
        raise InvalidEpisode(f"{path}: {len(tasks)} tasks for {episodes} episodes")
    return tasks * episodes if len(tasks) == 1 else tasks


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """Return one array of the archive, memory-mapped when it is stored uncompressed."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = read_header(file)
        header_bytes = file.tell()
        _check_size(info, header_bytes, math.prod(shape) * dtype.itemsize)
        if info.compress_type != zipfile.ZIP_STORED or fortran_order or dtype.hasobject or 0 in shape or shape == ():
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)
    with path.open("rb") as raw:
        # The local header has lengths of its own, at byte 26: its extra field may differ from the index's.
        raw.seek(info.header_offset + 26)
        name_and_extra = int.from_bytes(raw.read(2), "little") + int.from_bytes(raw.read(2), "little")
    # A local header has 30 bytes, then name and extra field, then the member's own .npy header.
    offset = info.header_offset + 30 + name_and_extra + header_bytes
    return np.asarray(np.memmap(path, dtype, "r", offset, shape))


def _check_sums(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise `BadZipFile` if a member is not as its checksum says; mapped ones are read once for that, and remembered.

    Compressed members were compared when they were decompressed.
    """
    if was_verified([path]):
        return
    for info in archive.infolist():
        if info.compress_type == zipfile.ZIP_STORED:
            with archive.open(info) as file:
                while file.read(1 << 20):
                    pass  # the end of a member is where the sum is compared
    remember_verified([path])


def _check_size(info: zipfile.ZipInfo, header: int, content: int) -> None:
    """Raise `ValueError` for an array that is not as large as its header says, or that was compressed absurdly well."""
    if info.file_size != header + content:
        raise ValueError(f"{info.filename} has {info.file_size} bytes, its header describes {header + content}")
    if info.file_size > _BOMB_BYTES and info.file_size > _BOMB_RATIO * info.compress_size:
        raise ValueError(
            f"{info.filename} would grow from {info.compress_size} to {info.file_size} bytes: if that is meant, "
            "write it with np.savez, which does not compress"
        )


def _typed(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """Return images as they are and other arrays as float32 with at least one number per frame, mapped if possible."""
    if is_image(array):
        return array
    rows = array[:, None] if array.ndim == 1 else array
    if rows.dtype == np.float32 and rows.flags.c_contiguous:
        return rows
    return load_column(name, rows.shape, lambda: row_blocks(rows), [path])
