"""Which reader understands a path."""

from collections.abc import Callable
from pathlib import Path

from oat.data.episodes import Episodes
from oat.data.hdf5 import HDF5_SUFFIXES, read_hdf5
from oat.data.lerobot import read_lerobot
from oat.data.npz import read_npz
from oat.data.zarr import is_zarr, read_zarr
from oat.errors import UnknownFormat

SUPPORTED = (
    "a LeRobotDataset v3.0 directory (meta/info.json), a robomimic or LIBERO .hdf5 file or a directory of them, "
    "a zarr ReplayBuffer (directory or .zip), or an .npz with `actions` and `episode_ends`"
)


def detect_format(path: Path) -> Callable[[Path], Episodes]:
    """The reader for `path`, recognised by its contents' layout and its suffix."""
    if not path.exists():
        raise UnknownFormat(f"{path}: no such file or directory")
    if ".partial-" in path.name:
        raise UnknownFormat(f"{path} is an unfinished data set whose writer was stopped; delete it and write it again")
    if (path / "meta" / "info.json").exists():
        return read_lerobot
    if is_zarr(path):
        return read_zarr
    if any(f.suffix.lower() in HDF5_SUFFIXES for f in (path.iterdir() if path.is_dir() else [path])):
        return read_hdf5
    if path.suffix == ".npz":
        return read_npz
    raise UnknownFormat(f"{path} is not a known data set. Expected {SUPPORTED}.")
