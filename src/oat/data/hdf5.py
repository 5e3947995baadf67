"""robomimic's, LIBERO's and RoboCasa's HDF5 files as one data set: a file, or a directory with one per task.

Filter keys, which are lists of demo names in `mask/…`, become subsets.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from oat.data.columns import UINT8, LazyColumn, frame_numbers, load_column
from oat.data.episodes import STATE, Episodes, Frames
from oat.data.hdf5_demos import (
    HDF5_SUFFIXES,
    ROBOMIMIC_TASKS,
    Demo,
    explain_read_errors,
    list_demos,
    list_files,
    open_file,
    read_attributes,
    task_name,
)
from oat.data.observation_keys import observation_keys
from oat.errors import InvalidEpisode, MissingKey

ROBOMIMIC_STATE = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object")
ROBOMIMIC_STATE_DIM = 23
"""The keys above, joined, are the state; zeros fill it up, because Lift's object has 10 numbers, not 14."""

_SAME_OBJECT = re.compile(r"1\.[0-4](\.|$)")
"""Versions of robosuite in which `object` is what it is in the simulator; from 1.5 on, its parts have another order."""
_OTHER_OBJECT = " of a later robosuite, from which `oat convert --render` makes observation.state"


@dataclass(frozen=True)
class ImageFrames:
    """Read the images of consecutive demonstrations from their files when they are indexed."""

    demos: tuple[Demo, ...]
    starts: np.ndarray
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] = UINT8

    def __getitem__(self, frames: np.ndarray | slice) -> np.ndarray:
        frames = frame_numbers(frames, self.shape[0])
        out = np.empty((len(frames), *self.shape[1:]), np.uint8)
        owners = np.searchsorted(self.starts, frames, side="right") - 1
        for owner in np.unique(owners):
            mine = owners == owner
            # h5py reads rows only in increasing order and without repeats.
            rows, back = np.unique(frames[mine] - self.starts[owner], return_inverse=True)
            out[mine] = self.demos[owner].read(self.key, rows)[back]
        return out


def is_hdf5(path: Path) -> bool:
    """Return whether a path is an HDF5 file or a directory that holds some, judged by the suffix."""
    files = path.iterdir() if path.is_dir() else [path]
    return any(file.suffix.lower() in HDF5_SUFFIXES for file in files)


def read_hdf5(path: Path) -> Episodes:
    """Read one file, or every HDF5 file of a directory as one set."""
    files = list_files(path)
    demos: list[Demo] = []
    tasks: list[str] = []
    subsets: dict[str, list[int]] = {}
    fps: float | None = None
    same_state: set[bool | None] = set()
    for file in files:
        with explain_read_errors(file):
            handle = open_file(file)
            found = list_demos(file)
            attributes = read_attributes(file)
            numbers = {demo.name: len(demos) + number for number, demo in enumerate(found)}
            for name, members in _filter_keys(file, handle, set(numbers)).items():
                subsets.setdefault(name, []).extend(sorted(numbers[member] for member in members))
        demos += found
        tasks += [task_name(file, attributes)] * len(found)
        fps = fps or _control_frequency(attributes)
        same_state.add(_has_simulators_state(attributes))
    if not demos:
        raise InvalidEpisode(f"{path}: no demonstrations in it (`data/demo_<i>`)")
    _check_alike(demos)
    lengths = [demo.shapes["actions"][0] for demo in demos]
    return Episodes.from_arrays(
        _column(demos, "actions", files),
        lengths,
        tasks,
        observations=_observations(demos, np.cumsum(lengths) - np.asarray(lengths), files, same_state == {True}),
        fps=fps,
        subsets={name: np.array(members, np.int64) for name, members in subsets.items()},
        source=f"{path} (HDF5{_OTHER_OBJECT if False in same_state else ''})",
    )


def _filter_keys(file: Path, handle: Any, demos: set[str]) -> dict[str, set[str]]:
    """Return the lists of demo names in `mask/…`."""
    keys = {}
    for name, members in handle.get("mask", {}).items():
        if not hasattr(members, "shape"):
            continue
        listed = {m.decode() if isinstance(m, bytes) else str(m) for m in np.ravel(members[...]).tolist()}
        if unknown := listed - demos:
            raise MissingKey(f"{file}: mask/{name} names {sorted(unknown)[:3]}, which are not in data/")
        keys[name] = listed
    return keys


def _control_frequency(attributes: Mapping[str, Any]) -> float | None:
    """Return the frequency at which robosuite was controlled, or None where the file does not say."""
    env = attributes.get("env_args")
    kwargs = env.get("env_kwargs") if isinstance(env, dict) else None
    frequency = kwargs.get("control_freq") if isinstance(kwargs, dict) else None
    return float(frequency) if isinstance(frequency, int | float) and frequency > 0 else None


def _has_simulators_state(attributes: Mapping[str, Any]) -> bool | None:
    """Return whether robomimic's keys make the simulator's state; None for files that are not robomimic's."""
    env = attributes.get("env_args")
    if not isinstance(env, dict) or str(env.get("env_name")) not in ROBOMIMIC_TASKS:
        return None
    # A file that does not name its version is taken for one of robosuite 1.2.
    return _SAME_OBJECT.match(str(env.get("env_version", "1.2"))) is not None


def _check_alike(demos: list[Demo]) -> None:
    """Raise unless every demonstration has the same keys and dimensions, and as many observations as actions."""
    first = demos[0]
    if len(first.shapes["actions"]) != 2:
        raise InvalidEpisode(f"{first}: actions must be (frames, dimensions), got {first.shapes['actions']}")
    for demo in demos:
        if missing := set(first.shapes) - set(demo.shapes):
            raise MissingKey(f"{demo} lacks {sorted(missing)}, which {first} has")
        for key, expected in first.shapes.items():
            shape = demo.shapes[key]
            if shape[1:] != expected[1:] or len(shape) != len(expected):
                raise InvalidEpisode(f"{demo}: {key} has dimensions {shape[1:]}, but {expected[1:]} in {first}")
            if (key in demo.images) != (key in first.images):
                raise InvalidEpisode(f"{demo}: {key} holds images of another type than in {first}")
            if shape[:1] != demo.shapes["actions"][:1]:
                raise InvalidEpisode(f"{demo}: {key} has {shape[0]} frames, actions {demo.shapes['actions'][0]}")


def _column(demos: list[Demo], key: str, files: list[Path]) -> np.ndarray:
    frames = sum(demo.shapes[key][0] for demo in demos)
    shape = (frames, *(demos[0].shapes[key][1:] or (1,)))
    return load_column(key, shape, lambda: (demo.read(key).reshape(-1, *shape[1:]) for demo in demos), files)


def _observations(demos: list[Demo], starts: np.ndarray, files: list[Path], with_state: bool) -> dict[str, Frames]:
    first = demos[0]
    keys = [key for key in first.shapes if key != "actions"]
    names = observation_keys(first.file, {key.removeprefix("obs/"): key in first.images for key in keys})
    observations: dict[str, Frames] = {}
    for key in keys:
        name = names[key.removeprefix("obs/")]
        shape = first.shapes[key]
        frames = sum(demo.shapes[key][0] for demo in demos)
        if key in first.images:
            observations[name] = ImageFrames(tuple(demos), starts, key, (frames, *shape[1:]))
        else:
            observations[name] = LazyColumn((frames, *(shape[1:] or (1,))), partial(_column, demos, key, files))
    parts = [f"obs/{key}" for key in ROBOMIMIC_STATE]
    if with_state and STATE not in observations and set(parts) <= set(keys):
        frames = sum(demo.shapes["actions"][0] for demo in demos)
        observations[STATE] = LazyColumn((frames, ROBOMIMIC_STATE_DIM), partial(_state, demos, parts, files))
    return observations


def _state(demos: list[Demo], parts: Sequence[str], files: list[Path]) -> np.ndarray:
    """Return robomimic's keys as one vector per frame, the same as the simulator's observation.state."""

    def blocks() -> Iterator[np.ndarray]:
        for demo in demos:
            state = np.concatenate([demo.read(part) for part in parts], axis=1)
            yield np.pad(state, ((0, 0), (0, ROBOMIMIC_STATE_DIM - state.shape[1])))

    frames = sum(demo.shapes["actions"][0] for demo in demos)
    return load_column(STATE, (frames, ROBOMIMIC_STATE_DIM), blocks, files)
