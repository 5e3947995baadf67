"""The registry of data formats: how each is recognised, and which function reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oat.data.episodes import Episodes
from oat.data.hdf5 import is_hdf5, read_hdf5
from oat.data.lerobot import is_lerobot, read_lerobot
from oat.data.npz import is_npz, read_npz
from oat.data.zarr import is_zarr, read_zarr
from oat.errors import UnknownFormat


@dataclass(frozen=True)
class DataFormat:
    """Describe a format of demonstrations on disk, and how to read it."""

    description: str
    """What a data set of this format looks like, for the message that lists what is readable."""
    matches: Callable[[Path], bool]
    """Whether an existing path looks like this format, judged by names and suffixes without reading contents."""
    read: Callable[[Path], Episodes]


# The first format that matches is used, so a directory's own marker files come before the suffixes of files inside.
FORMATS: dict[str, DataFormat] = {
    "lerobot": DataFormat("a LeRobotDataset v3.0 directory (meta/info.json)", is_lerobot, read_lerobot),
    "zarr": DataFormat("a zarr ReplayBuffer (directory or .zip)", is_zarr, read_zarr),
    "hdf5": DataFormat("a robomimic or LIBERO .hdf5 file or a directory of them", is_hdf5, read_hdf5),
    "npz": DataFormat("an .npz with `actions` and `episode_ends`", is_npz, read_npz),
}


def detect_format(path: Path) -> DataFormat:
    """Return the format of the data set at `path`; raise `UnknownFormat`, which lists what is readable."""
    if not path.exists():
        raise UnknownFormat(f"{path}: no such file or directory")
    if ".partial-" in path.name:  # as `oat.io.atomic` names what is being written
        raise UnknownFormat(f"{path} is an unfinished data set whose writer was stopped; delete it and write it again")
    for data_format in FORMATS.values():
        if data_format.matches(path):
            return data_format
    *most, last = (data_format.description for data_format in FORMATS.values())
    raise UnknownFormat(f"{path} is not a known data set. Expected {', '.join(most)}, or {last}.")
