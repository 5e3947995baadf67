"""Demonstrations as training examples: windows by index arithmetic, shuffled streams, splits and mixtures.

Every frame t of an episode starts one window: the actions t … t+H_a-1 and the observations t-H_o+1 … t. Steps past the
episode's end repeat its last action and are marked invalid; steps before its start repeat its first frame.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Int64

from oat.data.episodes import Episodes
from oat.data.shuffle import Permutation, derive_key, derive_keys
from oat.errors import InvalidOption

_STREAM_BLOCK = 16384  # positions permuted at a time: many numpy calls on few elements would dominate
_WEIGHT_UNIT = 1 << 20  # mixture weights are multiples of 2^-20, so that counting positions is exact


@dataclass(frozen=True)
class WindowConfig:
    """What a training example holds."""

    action_horizon: int = 32
    """H_a: actions per chunk."""
    obs_horizon: int = 2
    """H_o: observations up to and including the current one."""
    observations: tuple[str, ...] = ()
    """Observation keys to read, such as observation.state."""

    def __post_init__(self) -> None:
        if self.action_horizon < 1 or self.obs_horizon < 1:
            raise InvalidOption(f"horizons must be at least 1, got {self.action_horizon} and {self.obs_horizon}")


@dataclass(frozen=True)
class Batch:
    """Examples side by side."""

    actions: Float32[np.ndarray, "batch action_horizon action_dim"]
    valid_mask: Bool[np.ndarray, "batch action_horizon"]
    """False where a step lies past the episode's end and only repeats the last action."""
    observations: Mapping[str, np.ndarray]
    """For each key (batch, obs_horizon, …)."""
    task_ids: Int64[np.ndarray, " batch"]
    windows: Int64[np.ndarray, " batch"]
    """Each example's number in its source."""

    def __len__(self) -> int:
        return len(self.actions)


@runtime_checkable
class Source(Protocol):
    """Something that `stream` can draw from."""

    tasks: tuple[str, ...]

    def __len__(self) -> int: ...

    def shuffle(self, positions: Int64[np.ndarray, " n"], seed: int) -> Int64[np.ndarray, " n"]:
        """The windows at these positions of an endless stream that visits every window once per epoch."""
        ...

    def __getitem__(self, windows: Int64[np.ndarray, " n"]) -> Batch: ...

    def fingerprint(self) -> str:
        """Tells sources of other demonstrations apart."""
        ...


class Windows:
    """All windows of a set of episodes; window w is found by arithmetic, and nothing is copied until asked for."""

    def __init__(self, episodes: Episodes, config: WindowConfig) -> None:
        if len(episodes) == 0:
            raise InvalidOption(f"{episodes.source}: no episodes to make windows of")
        self.episodes, self.config, self.tasks = episodes, config, episodes.tasks
        self._last = np.cumsum(episodes.lengths)  # windows up to and including each episode
        for key in config.observations:
            episodes.observation(key)  # refuses unknown ones
        self._past = np.arange(1 - config.obs_horizon, 1)
        self._ahead = np.arange(config.action_horizon)

    def __len__(self) -> int:
        return int(self._last[-1])

    def __getstate__(self) -> dict[str, Any]:
        """Without the overlapping view, which would be written out in full."""
        return {key: value for key, value in self.__dict__.items() if key != "_whole_windows"}

    @cached_property
    def _whole_windows(self) -> Float32[np.ndarray, "starts step_times_dim"]:
        """A view in which row t is the flattened window at frame t: gathering it is one contiguous copy per window."""
        actions, horizon = self.episodes.actions, self.config.action_horizon
        rows, dim = max(len(actions) - horizon + 1, 0), actions.shape[1]
        if rows == 0:
            return np.empty((0, horizon * dim), np.float32)
        strides = (actions.strides[0], actions.strides[1])
        return np.lib.stride_tricks.as_strided(actions, (rows, horizon * dim), strides, writeable=False)

    def __getitem__(self, windows: Int64[np.ndarray, " n"]) -> Batch:
        """The windows with these numbers, 0 … len-1."""
        if windows.size and not (windows.min() >= 0 and windows.max() < len(self)):
            raise InvalidOption(f"windows must be 0…{len(self) - 1}, got {windows.min()}…{windows.max()}")
        episode, step = self.locate(windows)
        start, end = self.episodes.starts[episode], self.episodes.ends[episode]
        frame = start + step
        remaining = end - frame
        observations = {}
        for key in self.config.observations:
            history = np.maximum(frame[:, None] + self._past, start[:, None])
            values = self.episodes.observations[key][history.reshape(-1)]
            observations[key] = values.reshape(*history.shape, *values.shape[1:])
        return Batch(
            self._actions(frame, end),
            remaining[:, None] > self._ahead,
            observations,
            self.episodes.task_ids[episode],
            windows,
        )

    def locate(self, windows: Int64[np.ndarray, " n"]) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
        """For each window the episode that it lies in, and the step of that episode at which it begins."""
        episode = np.searchsorted(self._last, windows, side="right")
        return episode, windows - self._last[episode] + self.episodes.lengths[episode]

    def _actions(
        self, frame: Int64[np.ndarray, " n"], end: Int64[np.ndarray, " n"]
    ) -> Float32[np.ndarray, "n action_horizon action_dim"]:
        horizon, actions = self.config.action_horizon, self.episodes.actions
        short = np.flatnonzero(end - frame < horizon)
        if len(self._whole_windows):
            out = self._whole_windows[np.minimum(frame, len(self._whole_windows) - 1)]
        else:  # the whole set is shorter than one window
            out = np.empty((len(frame), horizon * actions.shape[1]), np.float32)
        steps = np.minimum(frame[short, None] + self._ahead, end[short, None] - 1)
        out[short] = actions[steps].reshape(len(steps), out.shape[1])
        return out.reshape(len(frame), horizon, actions.shape[1])

    def shuffle(self, positions: Int64[np.ndarray, " n"], seed: int) -> Int64[np.ndarray, " n"]:
        """The windows at these positions of an endless stream that visits every window once per epoch."""
        epochs, inside = np.divmod(positions, len(self))
        return Permutation(len(self), derive_keys(seed, epochs))(inside)

    def fingerprint(self) -> str:
        return self.episodes.fingerprint()


class Mixture:
    """Several sources drawn in fixed proportions, each still visited evenly; any position is found in O(sources)."""

    def __init__(self, sources: Sequence[Windows], weights: Sequence[float]) -> None:
        if not sources or len(sources) != len(weights) or not all(0 < weight < np.inf for weight in weights):
            raise InvalidOption(f"a mixture needs one positive weight per source, got {list(weights)}")
        if min(weights) / sum(weights) < 1e-5:
            raise InvalidOption(f"weights must not differ by more than 100,000, got {list(weights)}")
        self.sources, self.weights = tuple(sources), np.asarray(weights, float) / np.sum(weights)
        self._check_alike()
        self.tasks = tuple(dict.fromkeys(task for source in sources for task in source.tasks))
        self._first = np.cumsum([0, *map(len, sources)])[:-1]
        self._task_ids = [np.array([self.tasks.index(task) for task in source.tasks]) for source in sources]

    def _check_alike(self) -> None:
        first = self.sources[0]
        for source in self.sources[1:]:
            ours, theirs = source.episodes, first.episodes
            if source.config != first.config:
                raise InvalidOption("the sources of a mixture must have equal window settings")
            if ours.action_dim != theirs.action_dim:
                raise InvalidOption(
                    f"cannot mix {ours.action_dim}-D actions ({ours.source}) "
                    f"with {theirs.action_dim}-D actions ({theirs.source})"
                )
            for key in first.config.observations:
                if ours.observation(key).shape[1:] != theirs.observation(key).shape[1:]:
                    raise InvalidOption(f"cannot mix {key} of {ours.source} and {theirs.source}: their shapes differ")

    def __len__(self) -> int:
        """Positions after which every source has been visited at least once."""
        return int(
            max(np.ceil(len(source) / weight) for source, weight in zip(self.sources, self.weights, strict=True))
        )

    def shuffle(self, positions: Int64[np.ndarray, " n"], seed: int) -> Int64[np.ndarray, " n"]:
        owners, ranks = self._assign(positions)
        windows = np.empty_like(positions)
        for number, source in enumerate(self.sources):
            mine = owners == number
            windows[mine] = self._first[number] + source.shuffle(ranks[mine], derive_key(seed, number))
        return windows

    def __getitem__(self, windows: Int64[np.ndarray, " n"]) -> Batch:
        """Windows numbered through all sources, one source after the other."""
        owners = np.searchsorted(self._first, windows, side="right") - 1
        places = [np.flatnonzero(owners == number) for number in range(len(self.sources))]
        parts = [
            replace(part := source[windows[place] - first], task_ids=ids[part.task_ids])
            for source, place, first, ids in zip(self.sources, places, self._first, self._task_ids, strict=True)
        ]
        back = np.argsort(np.concatenate(places), kind="stable")
        return Batch(
            np.concatenate([part.actions for part in parts])[back],
            np.concatenate([part.valid_mask for part in parts])[back],
            {key: np.concatenate([part.observations[key] for part in parts])[back] for key in parts[0].observations},
            np.concatenate([part.task_ids for part in parts])[back],
            windows,
        )

    def fingerprint(self) -> str:
        return " + ".join(
            f"{weight:.6g} {source.fingerprint()}" for source, weight in zip(self.sources, self.weights, strict=True)
        )

    def _assign(self, positions: Int64[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
        """For each position its source and its rank among that source's positions.

        Source s takes position p of the positions left to it when ⌊(p+1)·w⌋ > ⌊p·w⌋; its rank is then ⌊p·w⌋ and the
        others continue with p - ⌊p·w⌋.
        """
        owners, ranks = np.full(len(positions), len(self.sources) - 1), positions.copy()
        undecided, left = np.arange(len(positions)), positions
        for number in range(len(self.sources) - 1):
            share = round(float(self.weights[number] / self.weights[number:].sum()) * _WEIGHT_UNIT)
            taken = left * share // _WEIGHT_UNIT
            mine = (left + 1) * share // _WEIGHT_UNIT > taken
            owners[undecided[mine]], ranks[undecided[mine]] = number, taken[mine]
            undecided, left = undecided[~mine], (left - taken)[~mine]
        ranks[undecided] = left
        return owners, ranks


def stream(
    source: Source, batch_size: int, seed: int, start: int = 0, rank: int = 0, world_size: int = 1
) -> Iterator[Batch]:
    """Endless shuffled batches, beginning with batch number `start`; process `rank` gets its share of each."""
    return (source[windows] for windows in window_stream(source, batch_size, seed, start, rank, world_size))


def window_stream(
    source: Source, batch_size: int, seed: int, start: int = 0, rank: int = 0, world_size: int = 1
) -> Iterator[Int64[np.ndarray, " share"]]:
    """The windows of each batch of `stream`.

    Batch b of the whole job covers positions b·B … (b+1)·B - 1, so neither a restart nor the number of processes
    changes what is seen.
    """
    if batch_size < 1 or batch_size % world_size:
        raise InvalidOption(f"a batch of {batch_size} cannot be shared by {world_size} processes")
    if not 0 <= rank < world_size or start < 0:
        raise InvalidOption(f"rank must be in 0…{world_size - 1} and start ≥ 0, got {rank} and {start}")
    return _window_blocks(source, batch_size, seed, start, rank, batch_size // world_size)


def _window_blocks(
    source: Source, batch_size: int, seed: int, start: int, rank: int, share: int
) -> Iterator[Int64[np.ndarray, " share"]]:
    steps = max(1, _STREAM_BLOCK // share)
    while True:
        firsts = np.arange(start, start + steps) * batch_size + rank * share
        positions = firsts[:, None] + np.arange(share)
        yield from source.shuffle(positions.reshape(-1), seed).reshape(steps, share)
        start += steps


def split_episodes(
    episodes: Episodes, validation: float = 0.1, seed: int = 0
) -> tuple[Int64[np.ndarray, " train"], Int64[np.ndarray, " validation"]]:
    """Training and validation episodes, stratified by task.

    Each task gives its share rounded down; what is missing to the whole share, rounded, comes from the tasks with the
    largest remainders. A task with several episodes keeps one for training; tasks with a single one give it last.
    """
    if not 0 <= validation < 1:
        raise InvalidOption(f"the validation share must be in [0, 1), got {validation}")
    total = min(max(round(len(episodes) * validation), 1 if validation else 0), len(episodes) - 1)
    order = Permutation(len(episodes), derive_key(seed))(np.arange(len(episodes)))
    _, task, counts = np.unique(episodes.task_ids, return_inverse=True, return_counts=True)
    quota = np.minimum(np.floor(counts * validation).astype(np.int64), counts - 1)
    remainder = np.where(counts > 1, counts * validation - quota, -1.0)
    by_remainder = np.lexsort((Permutation(len(counts), derive_key(seed, 1))(np.arange(len(counts))), -remainder))
    for number in by_remainder.tolist():
        if quota.sum() >= total:
            break
        quota[number] += quota[number] < max(counts[number] - 1, 1)
    grouped = order[np.argsort(task[order], kind="stable")]  # each task's episodes together, in random order
    rank = np.arange(len(episodes)) - np.repeat(np.cumsum(counts) - counts, counts)
    held_out = np.sort(grouped[rank < np.repeat(quota, counts)])
    return np.setdiff1d(np.arange(len(episodes)), held_out), held_out
