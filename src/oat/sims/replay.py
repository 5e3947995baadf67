"""Observe demonstrations again from the simulator states that they store, through other cameras or in other sizes.

The files of robomimic, LIBERO and RoboCasa hold the simulator's state before every action, and the scene of every
demonstration. The simulator shows there what it would show live, so that a policy trained on these observations meets
the same ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from oat.data.columns import frame_numbers
from oat.data.episodes import Episodes
from oat.data.hdf5_demos import HDF5_SUFFIXES, Demo, list_demos, list_files, read_attributes
from oat.errors import InvalidOption, MissingKey, SimulatorError
from oat.sims import SIMULATORS, find_simulator, load_simulator
from oat.sims.robosuite import RobosuiteEnv


@runtime_checkable
class RebuildsEnvironments(Protocol):
    """Describe a simulator's class that can rebuild the environment in which a file's demonstrations were given."""

    def recognizes(self, attributes: Mapping[str, Any]) -> bool:
        """Return whether the attributes of a file say that its demonstrations were given in this simulator."""
        ...

    def environment_of(self, file: Path, cameras: tuple[str, ...] = (), image_size: int = 128) -> RobosuiteEnv:
        """Return the environment that a file of this simulator describes."""
        ...


def rerender(episodes: Episodes, path: Path, cameras: tuple[str, ...], image_size: int) -> Episodes:
    """Return the episodes of HDF5 file(s), observed again by the simulator from the states that are stored there."""
    files = [file for file in list_files(path.expanduser()) if file.suffix.lower() in HDF5_SUFFIXES]
    if not files:
        raise InvalidOption(
            f"{path} holds no simulator states to render from; HDF5 files of robomimic, LIBERO and RoboCasa do"
        )
    replay = Replay([demo for file in files for demo in list_demos(file)], cameras, image_size)
    first = {key: values[:1] for key, values in replay.observe(0).items()}
    frames = len(episodes.actions)
    observations = {
        key: ReplayedFrames(replay, key, (frames, *value.shape[1:]), value.dtype) for key, value in first.items()
    }
    # Data sets say in what they were rendered, because a kitchen may be one that stands for others.
    source = f"{episodes.source}, rendered in {load_simulator(_simulator_of(files[0])).version}"
    return replace(episodes, observations=observations, source=source)


def environment_of(file: Path, cameras: tuple[str, ...], image_size: int) -> RobosuiteEnv:
    """Return the environment in which the demonstrations of a file were given."""
    simulator: object = find_simulator(_simulator_of(file))
    assert isinstance(simulator, RebuildsEnvironments)
    return simulator.environment_of(file, cameras, image_size)


def _simulator_of(file: Path) -> str:
    """Return the name of the simulator in which the demonstrations of a file were given."""
    attributes = read_attributes(file)
    for name in SIMULATORS:
        simulator: object = find_simulator(name)
        if isinstance(simulator, RebuildsEnvironments) and simulator.recognizes(attributes):
            return name
    raise MissingKey(f"{file}: data has no attribute 'env_args' or 'problem_info' that describes the environment")


class Replay:
    """Observe demonstrations again, one after the other."""

    def __init__(self, demos: list[Demo], cameras: tuple[str, ...], image_size: int) -> None:
        self._demos = demos
        self._cameras = cameras
        self._image_size = image_size
        lengths = [demo.shapes["actions"][0] for demo in demos]
        self.starts = np.cumsum(lengths) - lengths
        self._file: Path | None = None
        self._env: RobosuiteEnv
        self._observed: tuple[int, Mapping[str, np.ndarray]] = (-1, {})

    def observe(self, number: int) -> Mapping[str, np.ndarray]:
        """Return all frames of a demonstration; those of the last one are kept, because keys are read one by one."""
        if self._observed[0] != number:
            demo = self._demos[number]
            states = demo.read_states()
            env = self._environment(demo.file)
            try:
                env.reset_to(states[0], demo.attribute("model_file"), demo.attribute("ep_meta"))
                seen = [env.show(state) for state in states]
            except SimulatorError as error:
                raise SimulatorError(f"{demo}: {error}") from error
            self._observed = (number, {key: np.stack([frame[key] for frame in seen]) for key in seen[0]})
        return self._observed[1]

    def _environment(self, file: Path) -> RobosuiteEnv:
        """Return the environment of a file, which is built anew only when the file changes."""
        if self._file != file:
            self._env = environment_of(file, self._cameras, self._image_size)
            self._file = file
        return self._env


@dataclass(frozen=True)
class ReplayedFrames:
    """Give the values of one observation key as an array of frames would, computed when they are read."""

    replay: Replay
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, frames: np.ndarray | slice) -> np.ndarray:
        frames = frame_numbers(frames, self.shape[0])
        out = np.empty((len(frames), *self.shape[1:]), self.dtype)
        owners = np.searchsorted(self.replay.starts, frames, side="right") - 1
        for owner in np.unique(owners):
            mine = owners == owner
            out[mine] = self.replay.observe(int(owner))[self.key][frames[mine] - self.replay.starts[owner]]
        return out
