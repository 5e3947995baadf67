"""A summary of a data set: counts, ranges, saturation and NaNs, which a person wants to know before using it."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from oat.data.episodes import Episodes
from oat.data.statistics import RunningStatistics

_BLOCK = 1 << 16  # frames read together
_BINS = 48  # of each histogram


@dataclass(frozen=True)
class DimensionSummary:
    """Summarise one action dimension over all frames whose actions are finite."""

    name: str
    min: float
    q01: float
    mean: float
    std: float
    q99: float
    max: float
    saturated: float
    """Share of values that lie exactly on the smallest or largest one; 0 for a constant dimension."""
    constant: bool
    nonfinite: int
    histogram: tuple[int, ...]
    """Counts in equal bins from min to max."""


@dataclass(frozen=True)
class DatasetSummary:
    """Summarise a whole data set as counts, action dimensions and episode lengths."""

    source: str
    episodes: int
    frames: int
    fps: float | None
    tasks: dict[str, int]
    """Episodes per task."""
    dimensions: tuple[DimensionSummary, ...]
    observations: dict[str, tuple[int, ...]]
    """Shape of one frame of each observation key."""
    nonfinite_observations: dict[str, int]
    """Values that are NaN or infinite of each key that holds floats."""
    subsets: dict[str, int]
    lengths: dict[str, tuple[int, ...]]
    """Episode lengths for each task."""

    def to_json(self) -> dict[str, Any]:
        """Return the summary as nested dicts and tuples, which JSON can hold."""
        return asdict(self)


def summarize_dataset(episodes: Episodes) -> DatasetSummary:
    """Summarise a data set in two passes over the actions and one over the observations that could hold a NaN."""
    order = np.argsort(episodes.task_ids, kind="stable")
    used, firsts = np.unique(episodes.task_ids[order], return_index=True)
    groups = np.split(episodes.lengths[order], firsts[1:])
    lengths = {episodes.tasks[task]: tuple(group.tolist()) for task, group in zip(used, groups, strict=True)}
    return DatasetSummary(
        source=episodes.source,
        episodes=len(episodes),
        frames=episodes.num_frames,
        fps=episodes.fps,
        tasks={task: len(group) for task, group in lengths.items()},
        dimensions=_dimensions(episodes),
        observations={key: tuple(map(int, frames.shape[1:])) for key, frames in episodes.observations.items()},
        nonfinite_observations=_nonfinite_observations(episodes),
        subsets={name: len(members) for name, members in episodes.subsets.items()},
        lengths=lengths,
    )


def _blocks(episodes: Episodes) -> list[np.ndarray]:
    """Return the numbers of all frames in pieces, because the arrays may be larger than memory."""
    frames = episodes.all_frames()
    return [frames[first : first + _BLOCK] for first in range(0, len(frames), _BLOCK)]


def _nonfinite_observations(episodes: Episodes) -> dict[str, int]:
    """Count the values that are NaN or infinite; images are bytes and cannot hold any."""
    floats = {key: values for key, values in episodes.observations.items() if values.dtype.kind == "f"}
    return {
        key: sum(int((~np.isfinite(values[block])).sum()) for block in _blocks(episodes))
        for key, values in floats.items()
    }


def _dimensions(episodes: Episodes) -> tuple[DimensionSummary, ...]:
    """Summarise every action dimension; return nothing if no frame's actions are finite."""
    statistics, nonfinite = _finite_statistics(episodes)
    if statistics.count == 0:
        return ()
    low = statistics.min
    high = statistics.max
    extreme, histograms = _count_values(episodes, low, high)
    q01, q99 = statistics.quantiles((0.01, 0.99))
    return tuple(
        DimensionSummary(
            name=episodes.action_names[dim] if episodes.action_names else str(dim),
            min=float(low[dim]),
            q01=float(q01[dim]),
            mean=float(statistics.mean[dim]),
            std=float(statistics.std[dim]),
            q99=float(q99[dim]),
            max=float(high[dim]),
            saturated=float(extreme[dim] / statistics.count) if high[dim] > low[dim] else 0.0,
            constant=bool(high[dim] == low[dim]),
            nonfinite=int(nonfinite[dim]),
            histogram=tuple(histograms[dim].tolist()),
        )
        for dim in range(episodes.action_dim)
    )


def _finite_statistics(episodes: Episodes) -> tuple[RunningStatistics, np.ndarray]:
    """Return the statistics of frames whose actions are finite, and each dimension's number of other values."""
    statistics = RunningStatistics(episodes.num_frames)
    nonfinite = np.zeros(episodes.action_dim, np.int64)
    for block in _blocks(episodes):
        actions = episodes.actions[block]
        bad = ~np.isfinite(actions)
        nonfinite += bad.sum(0)
        statistics.update(actions[~bad.any(axis=1)])
    return statistics, nonfinite


def _count_values(episodes: Episodes, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many values of each dimension lie on an extreme, and a histogram of each.

    This is a second pass over the actions: the extremes, which are the bins' outer edges, come from the first.
    """
    extreme = np.zeros(episodes.action_dim, np.int64)
    histograms = np.zeros((episodes.action_dim, _BINS), np.int64)
    for block in _blocks(episodes):
        actions = episodes.actions[block]
        actions = actions[np.isfinite(actions).all(axis=1)]
        extreme += ((actions == low) | (actions == high)).sum(0)
        for dim in range(episodes.action_dim):
            histograms[dim] += np.histogram(actions[:, dim], _BINS, (low[dim], high[dim]))[0]
    return extreme, histograms
