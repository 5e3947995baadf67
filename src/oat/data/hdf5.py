"""robomimic and LIBERO demonstrations: `data/demo_<i>/{actions, obs/<key>}` in one HDF5 file or one per task.

Layout: https://robomimic.github.io/docs/datasets/overview.html; filter keys are the lists of demo names in `mask/…`.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from oat.data.columns import LazyColumn, file_identity, load_column
from oat.data.episodes import UINT8, Episodes, Frames, observation_key
from oat.errors import CorruptDataset, InvalidEpisode, MissingKey
from oat.extras import import_extra

HDF5_SUFFIXES = {".hdf5", ".h5"}


@dataclass(frozen=True)
class Demo:
    """One demonstration inside a file: its arrays' shapes, read without their contents."""

    file: Path
    name: str
    shapes: Mapping[str, tuple[int, ...]]  # "actions" and "obs/<key>"

    def __str__(self) -> str:
        return f"{self.file}:data/{self.name}"

    def read(self, key: str, rows: Any = ...) -> np.ndarray:
        with explain_read_errors(self.file):
            return np.asarray(open_file(self.file)[f"data/{self.name}/{key}"][rows])


@dataclass(frozen=True)
class ImageFrames:
    """Images of consecutive demos, read from their files when indexed."""

    demos: tuple[Demo, ...]
    starts: np.ndarray
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] = UINT8

    def __getitem__(self, frames: np.ndarray) -> np.ndarray:
        out = np.empty((len(frames), *self.shape[1:]), np.uint8)
        owners = np.searchsorted(self.starts, frames, side="right") - 1
        for owner in np.unique(owners):
            mine = owners == owner
            rows, back = np.unique(frames[mine] - self.starts[owner], return_inverse=True)  # h5py wants sorted, once
            out[mine] = self.demos[owner].read(self.key, rows)[back]
        return out


def read_hdf5(path: Path) -> Episodes:
    """Read one file, or every .hdf5 file of a directory as one set."""
    files = sorted(f for f in path.iterdir() if f.suffix in HDF5_SUFFIXES) if path.is_dir() else [path]
    demos: list[Demo] = []
    tasks: list[str] = []
    subsets: dict[str, list[int]] = {}
    fps: float | None = None
    for file in files:
        with explain_read_errors(file):
            handle = open_file(file)
            found = _list_demos(file, handle)
            for name, members in _filter_keys(handle).items():
                subsets.setdefault(name, []).extend(len(demos) + i for i, d in enumerate(found) if d.name in members)
            attributes = {key: _parse(value) for key, value in handle["data"].attrs.items()}
        demos += found
        tasks += [_task(file, attributes)] * len(found)
        fps = fps or attributes.get("env_args", {}).get("env_kwargs", {}).get("control_freq")
    if not demos:
        raise InvalidEpisode(f"{path}: no demonstrations in it (`data/demo_<i>`)")
    lengths = [demo.shapes["actions"][0] for demo in demos]
    _check_alike(demos)
    return Episodes.from_arrays(
        _column(demos, "actions", files),
        lengths,
        tasks,
        observations=_observations(demos, np.cumsum(lengths) - np.asarray(lengths), files),
        fps=fps,
        subsets={name: np.array(members, np.int64) for name, members in subsets.items()},
        source=f"{path} (HDF5)",
    )


@contextmanager
def explain_read_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except (MissingKey, InvalidEpisode):
        raise
    except KeyError as error:
        raise MissingKey(f"{file}: {str(error).strip(chr(39))}") from error
    except (OSError, RuntimeError) as error:
        raise CorruptDataset(f"{file}: not a readable HDF5 file ({error})") from error


def open_file(file: Path) -> Any:
    """A handle that stays open between reads, per process: HDF5 handles must not cross a fork."""
    return _open_file(file, file_identity(file), os.getpid())


@lru_cache(maxsize=64)
def _open_file(file: Path, identity: tuple[int, int, int], process: int) -> Any:
    return import_extra("h5py", "formats").File(file, "r")


def _list_demos(file: Path, handle: Any) -> list[Demo]:
    if "data" not in handle:
        raise MissingKey(f"{file}: no group 'data'; it has {sorted(handle)}")
    names = sorted(handle["data"], key=lambda name: [int(n) for n in re.findall(r"\d+", name)] or [0])
    return [_describe(file, name, handle["data"][name]) for name in names]


def _describe(file: Path, name: str, group: Any) -> Demo:
    if "actions" not in group:
        raise MissingKey(f"{file}: data/{name} has no 'actions'; it has {sorted(group)}")
    shapes = {"actions": group["actions"].shape}
    shapes |= {f"obs/{key}": array.shape for key, array in group.get("obs", {}).items() if hasattr(array, "shape")}
    return Demo(file, name, shapes)


def _filter_keys(handle: Any) -> dict[str, set[str]]:
    return {name: {bytes(demo).decode() for demo in members[...]} for name, members in handle.get("mask", {}).items()}


def _parse(attribute: Any) -> Any:
    """Attributes hold JSON; anything else is kept as text."""
    try:
        return json.loads(attribute)
    except (TypeError, ValueError):
        return attribute


def _task(file: Path, attributes: Mapping[str, Any]) -> str:
    """LIBERO's instruction, else robomimic's environment name, else the file's name."""
    problem, env = attributes.get("problem_info"), attributes.get("env_args")
    instruction = problem.get("language_instruction") if isinstance(problem, dict) else None
    if isinstance(instruction, list):  # early LIBERO files store a list of words
        instruction = " ".join(instruction)
    name = env.get("env_name") if isinstance(env, dict) else None
    return str(instruction or name or file.stem).strip('"')


def _check_alike(demos: list[Demo]) -> None:
    """Every demonstration has the same keys and dimensions, and as many observations as actions."""
    first = demos[0]
    for demo in demos:
        if missing := set(first.shapes) - set(demo.shapes):
            raise MissingKey(f"{demo} lacks {sorted(missing)}, which {first} has")
        for key, expected in first.shapes.items():
            shape = demo.shapes[key]
            if shape[1:] != expected[1:] or len(shape) != len(expected):
                raise InvalidEpisode(f"{demo}: {key} has dimensions {shape[1:]}, but {expected[1:]} in {first}")
            if shape[:1] != demo.shapes["actions"][:1]:
                raise InvalidEpisode(f"{demo}: {key} has {shape[0]} frames, actions {demo.shapes['actions'][0]}")
    if len(first.shapes["actions"]) != 2:
        raise InvalidEpisode(f"{first}: actions must be (frames, dimensions), got {first.shapes['actions']}")


def _column(demos: list[Demo], key: str, files: list[Path]) -> np.ndarray:
    frames = sum(demo.shapes[key][0] for demo in demos)
    shape = (frames, *(demos[0].shapes[key][1:] or (1,)))
    return load_column(key, shape, lambda: (demo.read(key).reshape(-1, *shape[1:]) for demo in demos), files)


def _observations(demos: list[Demo], starts: np.ndarray, files: list[Path]) -> dict[str, Frames]:
    observations: dict[str, Frames] = {}
    for key, shape in demos[0].shapes.items():
        if key == "actions":
            continue
        name = observation_key(key.removeprefix("obs/"), len(shape) == 4)
        frames = sum(demo.shapes[key][0] for demo in demos)
        if len(shape) == 4:
            observations[name] = ImageFrames(tuple(demos), starts, key, (frames, *shape[1:]))
        else:
            observations[name] = LazyColumn((frames, *(shape[1:] or (1,))), partial(_column, demos, key, files))
    return observations
