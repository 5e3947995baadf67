"""Demonstrations in memory: one contiguous action array, episode bounds, task strings, lazily read observations."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, SupportsIndex, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64

from oat.data.columns import UINT8, MappedArray
from oat.errors import InvalidEpisode, InvalidOption, unknown_name

STATE = "observation.state"
"""LeRobot's name of the robot's state vector, used for every format."""

IMAGES = "observation.images."
"""LeRobot's prefix of camera images, used for every format."""

CameraStorage = Literal["video", "image"]
"""How cameras are written: H.264, which is small, or PNG, which is exact."""

WhenExists = Literal["refuse", "append", "overwrite"]
"""What a writer does when its output path is taken."""

LARGEST_IMAGE = 8192
"""Pixels of the longest side that an image may have: what a file says of its size is believed up to here."""

_BLOCK = 1 << 18  # frames looked at together


@runtime_checkable
class Frames(Protocol):
    """Give the values of one observation key for all frames, read when indexed; every numpy array does."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return (frames, *feature): (N, D) for vectors, (N, height, width, 3) for images."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return float32 for vectors, uint8 for images."""
        ...

    def __getitem__(self, frames: np.ndarray | slice, /) -> np.ndarray:
        """Return the values at these frames, which may come in any order and repeatedly, or as a slice."""
        ...


def is_image(frames: Frames) -> bool:
    """Return whether these are colour images; depth maps and other arrays count as vectors."""
    return len(frames.shape) == 4 and frames.shape[-1] == 3 and frames.dtype == UINT8


@dataclass(frozen=True)
class Episodes:
    """Hold a set of demonstrations: episode e is the frames `starts[e]` … `ends[e] - 1`; a subset shares the arrays."""

    actions: Float32[np.ndarray, "frames action_dim"]
    """All actions, episode after episode; memory-mapped when large."""
    starts: Int64[np.ndarray, " episodes"]
    ends: Int64[np.ndarray, " episodes"]
    tasks: tuple[str, ...]
    """The distinct task strings."""
    task_ids: Int64[np.ndarray, " episodes"]
    """For each episode its index into `tasks`."""
    observations: Mapping[str, Frames] = field(default_factory=dict)
    fps: float | None = None
    """Control frequency; None where the format does not record it."""
    subsets: Mapping[str, Int64[np.ndarray, " members"]] = field(default_factory=dict)
    """Named groups of episodes: HDF5 filter keys (`mask/…`), LeRobot splits."""
    action_names: tuple[str, ...] = ()
    source: str = "memory"
    """Where it was read from and in which format, for messages."""
    robot_type: str | None = None

    def __post_init__(self) -> None:
        # Windows are gathered through strides, which only a contiguous array has; a mapped one is not copied.
        object.__setattr__(self, "actions", np.ascontiguousarray(self.actions, np.float32))

    def __getstate__(self) -> dict[str, Any]:
        """Send mapped arrays to other processes as places in files, not as copies."""
        state = dict(self.__dict__)
        state["actions"] = MappedArray.find(self.actions) or self.actions
        state["observations"] = {
            key: (MappedArray.find(frames) or frames) if isinstance(frames, np.ndarray) else frames
            for key, frames in self.observations.items()
        }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["actions"], MappedArray):
            state["actions"] = state["actions"].open()
        opened = {k: v.open() if isinstance(v, MappedArray) else v for k, v in state["observations"].items()}
        self.__dict__.update(state, observations=opened)

    @classmethod
    def from_arrays(
        cls,
        actions: Float32[np.ndarray, "frames action_dim"],
        lengths: Sequence[int] | Int64[np.ndarray, " episodes"],
        episode_tasks: Sequence[str] | None = None,
        **rest: Any,
    ) -> "Episodes":
        """Build a set from consecutive episodes of the given lengths and one task string for each."""
        ends = np.cumsum(np.asarray(lengths, np.int64))
        names = list(episode_tasks) if episode_tasks is not None else [""] * len(ends)
        tasks = tuple(dict.fromkeys(names))
        index = {task: number for number, task in enumerate(tasks)}
        ids = np.array([index[name] for name in names], np.int64)
        return cls(actions, ends - np.asarray(lengths, np.int64), ends, tasks, ids, **rest)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Int64[np.ndarray, " episodes"]:
        """Return the number of frames of each episode."""
        return self.ends - self.starts

    @property
    def num_frames(self) -> int:
        """Return the number of frames of these episodes, of which the arrays may hold more."""
        return int(self.lengths.sum())

    @property
    def action_dim(self) -> int:
        """Return D_a, the numbers in one action."""
        return self.actions.shape[1]

    @property
    def cameras(self) -> tuple[str, ...]:
        """Return the observation keys that hold colour images."""
        return tuple(key for key, frames in self.observations.items() if is_image(frames))

    @property
    def vectors(self) -> tuple[str, ...]:
        """Return the observation keys that hold anything but colour images."""
        return tuple(key for key, frames in self.observations.items() if not is_image(frames))

    def task(self, episode: SupportsIndex) -> str:
        """Return the task string of one episode."""
        return self.tasks[self.task_ids[episode]]

    def frames(self, episode: SupportsIndex) -> Int64[np.ndarray, " length"]:
        """Return the frame numbers of one episode, to index `actions` or any observation key with."""
        return np.arange(self.starts[episode], self.ends[episode])

    def all_frames(self) -> Int64[np.ndarray, " frames"]:
        """Return the frame numbers of all episodes, in their order."""
        if len(self) == 0:
            return np.empty(0, np.int64)
        return np.concatenate([self.frames(episode) for episode in range(len(self))])

    def observation(self, key: str) -> Frames:
        """Return the frames of an observation key; raise `UnknownName`, which lists the keys, if there is none."""
        if key not in self.observations:
            raise unknown_name(f"observation key in {self.source}", key, self.observations)
        return self.observations[key]

    def fingerprint(self) -> str:
        """Return a hash of actions, lengths and tasks; observations, which may be videos, are not read."""
        digest = hashlib.blake2b(json.dumps(self.tasks).encode(), digest_size=8)
        parts = (self.actions[start:end] for start, end in zip(self.starts, self.ends, strict=True))
        for array in (self.lengths, self.task_ids, *parts):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def select(self, episodes: Sequence[int] | Int64[np.ndarray, " chosen"] | str) -> "Episodes":
        """Return the given episodes, by number or by the name of a subset, over the same arrays."""
        if isinstance(episodes, str):
            if episodes not in self.subsets:
                raise unknown_name(f"subset of {self.source}", episodes, self.subsets)
            episodes = self.subsets[episodes]
        chosen = np.asarray(episodes, np.int64)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self)):
            raise InvalidOption(f"{self.source}: episodes must be 0…{len(self) - 1}, got {chosen.min()}…{chosen.max()}")
        position = {int(episode): new for new, episode in enumerate(chosen)}
        subsets = {
            name: np.array([position[int(m)] for m in members if int(m) in position], np.int64)
            for name, members in self.subsets.items()
        }
        return replace(
            self, starts=self.starts[chosen], ends=self.ends[chosen], task_ids=self.task_ids[chosen], subsets=subsets
        )

    def check(self) -> "Episodes":
        """Raise `InvalidEpisode` for empty episodes, non-finite actions and observations of another length."""
        self.check_lengths()
        if empty := np.flatnonzero(self.lengths <= 0).tolist():
            raise InvalidEpisode(f"{self.source}: episode {empty[0]} is empty ({len(empty)} empty episodes in all)")
        for frame in self.nonfinite_frames()[:1]:
            episode = int(self.episode_of(np.array([frame]))[0])
            dim = int(np.flatnonzero(~np.isfinite(self.actions[frame]))[0])
            raise InvalidEpisode(
                f"{self.source}: action dimension {dim} is {self.actions[frame, dim]} in episode {episode}, "
                f"step {frame - self.starts[episode]}; remove the episode or repair it (`oat inspect` counts them)"
            )
        return self

    def check_lengths(self) -> None:
        """Raise `InvalidEpisode` if there is nothing, or if observations and actions differ in number."""
        if len(self) == 0:
            raise InvalidEpisode(f"{self.source}: no episodes")
        for key, frames in self.observations.items():
            if frames.shape[0] != len(self.actions):
                raise InvalidEpisode(f"{self.source}: {key} has {frames.shape[0]} frames, actions {len(self.actions)}")

    def check_finite(self, key: str, frames: Int64[np.ndarray, " n"], values: np.ndarray) -> None:
        """Raise `InvalidEpisode` if an observation, as read at these frames, holds a NaN or an infinity.

        Whoever reads all observations calls this: opening a set checks actions only, without reading observations.
        """
        for row, *place in np.argwhere(~np.isfinite(values))[:1].tolist():
            frame = int(frames[row])
            step = frame - self.starts[self.episode_of(frames[row : row + 1])[0]]
            raise InvalidEpisode(
                f"{self.source}: {key}{place} is {values[row, *place]} in frame {frame}, step {step} of its episode; "
                "remove the episode or repair it (`oat inspect` counts them)"
            )

    def nonfinite_frames(self) -> Int64[np.ndarray, " bad"]:
        """Return the frames of these episodes whose action holds a NaN or an infinity."""
        bad = [
            first + np.flatnonzero(~np.isfinite(self.actions[first : first + _BLOCK]).all(axis=1))
            for first in range(0, len(self.actions), _BLOCK)  # in pieces: the array may be larger than memory
        ]
        frames = np.concatenate([np.empty(0, np.int64), *bad])
        return frames[self.episode_of(frames) >= 0]

    def episode_of(self, frames: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Return the episode that each frame belongs to, or -1 if it is in none of them."""
        order = np.argsort(self.starts, kind="stable")  # `select` may have put episodes into another order
        episodes = order[np.searchsorted(self.starts[order], frames, side="right") - 1]
        inside = (self.starts[episodes] <= frames) & (frames < self.ends[episodes])
        return np.where(inside, episodes, -1)


def open_dataset(
    path: str | Path, subset: str | None = None, ranges: str | None = None, check: bool = True
) -> Episodes:
    """Read demonstrations in any known format (see `oat.data.formats`): LeRobot v3.0, HDF5, zarr ReplayBuffer or .npz.

    `subset` selects a named group of episodes, `ranges` episodes by number (`0:50,60`); `check=False` admits empty
    episodes and non-finite actions, for looking at a broken set.
    """
    from oat.data.formats import detect_format  # here, because the readers build Episodes

    path = Path(path).expanduser()
    episodes = detect_format(path).read(path)
    if subset is not None:
        episodes = episodes.select(subset)
    if ranges is not None:
        episodes = episodes.select(parse_episode_ranges(ranges, len(episodes)))
    episodes.check_lengths()
    return episodes.check() if check else episodes


def parse_episode_ranges(text: str, count: int) -> Int64[np.ndarray, " chosen"]:
    """Return episode numbers from a list such as `0:50,60,70:` (Python's half-open ranges)."""
    chosen: list[int] = []
    try:
        for part in text.split(","):
            first, colon, last = part.partition(":")
            if colon:
                chosen += range(count)[int(first) if first else None : int(last) if last else None]
            else:
                chosen.append(range(count)[int(first)])
    except (ValueError, IndexError):
        message = f"episodes must be a list like 0:50,60,70: within 0…{count - 1}, got {text!r}"
        raise InvalidOption(message) from None
    if not chosen or len(set(chosen)) != len(chosen):
        raise InvalidOption(f"episodes {text!r} names {'some twice' if chosen else 'none'} of 0…{count - 1}")
    return np.array(chosen, np.int64)
