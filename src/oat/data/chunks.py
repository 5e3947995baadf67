"""Demonstrations as training examples: windows of actions and observations, found by index arithmetic.

Every frame t of an episode starts one window: the actions t … t+H_a-1 and the observations t-H_o+1 … t. Steps past the
episode's end repeat its last action and are marked invalid; steps before its start repeat its first frame.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64

from oat.data.episodes import Episodes
from oat.data.shuffle import Permutation, derive_keys
from oat.errors import InvalidOption


@dataclass(frozen=True)
class WindowConfig:
    """Choose what a training example holds: how many actions, and which observations."""

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
    """Hold several training examples, stacked along the first axis."""

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


class Windows:
    """Number all windows of a set of episodes; window w is found by arithmetic, and nothing is copied until indexed."""

    def __init__(self, episodes: Episodes, config: WindowConfig) -> None:
        if len(episodes) == 0:
            raise InvalidOption(f"{episodes.source}: no episodes to make windows of")
        self.episodes = episodes
        self.config = config
        self.tasks = episodes.tasks
        self._last = np.cumsum(episodes.lengths)  # windows up to and including each episode
        for key in config.observations:
            episodes.observation(key)  # refuses unknown ones
        self._past = np.arange(1 - config.obs_horizon, 1)
        self._ahead = np.arange(config.action_horizon)

    def __len__(self) -> int:
        return int(self._last[-1])

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the view of overlapping windows, which would be written out in full."""
        return {key: value for key, value in self.__dict__.items() if key != "_whole_windows"}

    @cached_property
    def _whole_windows(self) -> Float32[np.ndarray, "starts step_times_dim"]:
        """Return a view whose row t is the flattened window at frame t, so that gathering is one copy per window."""
        actions = self.episodes.actions
        horizon = self.config.action_horizon
        dim = actions.shape[1]
        rows = max(len(actions) - horizon + 1, 0)
        if rows == 0:
            return np.empty((0, horizon * dim), np.float32)
        # A contiguous array of one column may have any stride along it, as `column[:, None]` has 0.
        strides = (actions.strides[0], actions.itemsize)
        return np.lib.stride_tricks.as_strided(actions, (rows, horizon * dim), strides, writeable=False)

    def __getitem__(self, windows: Int64[np.ndarray, " n"]) -> Batch:
        """Return the windows with these numbers, 0 … len-1, in any order and repeated as asked."""
        if windows.size and not (windows.min() >= 0 and windows.max() < len(self)):
            raise InvalidOption(f"windows must be 0…{len(self) - 1}, got {windows.min()}…{windows.max()}")
        episode, step = self.locate(windows)
        start = self.episodes.starts[episode]
        end = self.episodes.ends[episode]
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
        """Return for each window the episode that it lies in, and the step of that episode at which it begins."""
        episode = np.searchsorted(self._last, windows, side="right")
        return episode, windows - self._last[episode] + self.episodes.lengths[episode]

    def _actions(
        self, frame: Int64[np.ndarray, " n"], end: Int64[np.ndarray, " n"]
    ) -> Float32[np.ndarray, "n action_horizon action_dim"]:
        """Return the chunks that begin at these frames, of episodes that end before `end`."""
        horizon = self.config.action_horizon
        actions = self.episodes.actions
        short = np.flatnonzero(end - frame < horizon)
        if len(self._whole_windows):
            # Windows that reach past their episode's end are gathered like the rest and overwritten below.
            out = self._whole_windows[np.minimum(frame, len(self._whole_windows) - 1)]
        else:  # the whole set is shorter than one window
            out = np.empty((len(frame), horizon * actions.shape[1]), np.float32)
        steps = np.minimum(frame[short, None] + self._ahead, end[short, None] - 1)
        out[short] = actions[steps].reshape(len(steps), out.shape[1])
        return out.reshape(len(frame), horizon, actions.shape[1])

    def shuffle(self, positions: Int64[np.ndarray, " n"], seed: int) -> Int64[np.ndarray, " n"]:
        """Return the windows at these positions of an endless stream that visits every window once per epoch."""
        epochs, inside = np.divmod(positions, len(self))
        return Permutation(len(self), derive_keys(seed, epochs))(inside)

    def fingerprint(self) -> str:
        """Return a hash of the demonstrations, by which a resumed run notices other data."""
        return self.episodes.fingerprint()
