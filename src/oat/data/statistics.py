"""Statistics of columns that may not fit into memory: moments exactly, quantiles from at most a million rows."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from oat.data.episodes import Frames

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
QUANTILE_ROWS = 1_000_000
_CAMERA_PIXELS = 200_000  # of all chosen frames together, beyond which statistics hardly change


class RunningStatistics:
    """Gather minimum, maximum, mean, deviation and quantiles of rows that arrive in blocks."""

    def __init__(self, expected_rows: int) -> None:
        self._stride = max(1, math.ceil(expected_rows / QUANTILE_ROWS))  # quantiles are exact below QUANTILE_ROWS
        self._sample: list[np.ndarray] = []
        self.count = 0

    def update(self, rows: np.ndarray) -> None:
        """Take in rows (n, *shape), n ≥ 0."""
        if len(rows) == 0:
            return
        values = rows.astype(np.float64)
        mean = values.mean(0)
        low = values.min(0)
        high = values.max(0)
        squares = np.square(values - mean).sum(0)
        first_kept = -self.count % self._stride
        self._sample.append(np.array(rows[first_kept :: self._stride]))
        if self.count == 0:
            self.mean = mean
            self._squares = squares
            self.min = low
            self.max = high
        else:  # Chan, Golub and LeVeque's update: no cancellation between large sums
            shift = mean - self.mean
            total = self.count + len(rows)
            self.mean = self.mean + shift * (len(rows) / total)
            self._squares = self._squares + squares + np.square(shift) * (self.count * len(rows) / total)
            self.min = np.minimum(self.min, low)
            self.max = np.maximum(self.max, high)
        self.count += len(rows)

    @property
    def std(self) -> np.ndarray:
        """Return the standard deviation of the rows so far, divided by n as LeRobot does."""
        return np.asarray(np.sqrt(self._squares / self.count))

    def quantiles(self, fractions: Iterable[float]) -> np.ndarray:
        """Return quantiles (fractions, *shape), in one pass over the sample for all of them."""
        sample = np.concatenate(self._sample)
        self._sample = [sample]
        return np.asarray(np.quantile(sample, list(fractions), axis=0))

    def to_lists(self) -> dict[str, list[float]]:
        """Return the ten statistics that LeRobot stores, by its names."""
        values = {"min": self.min, "max": self.max, "mean": self.mean, "std": self.std}
        values |= dict(zip(QUANTILES, self.quantiles(QUANTILES.values()), strict=True))
        return {name: value.tolist() for name, value in values.items()} | {"count": [self.count]}


def vector_statistics(blocks: Iterable[np.ndarray], frames: int) -> dict[str, Any]:
    """Return the statistics of each number of the last axis, over all frames and any axes between, as LeRobot does."""
    statistics = RunningStatistics(frames)
    for block in blocks:
        statistics.update(block.reshape(-1, block.shape[-1]) if block.ndim > 1 else block[:, None])
    return statistics.to_lists() | {"count": [frames]}


def camera_statistics(frames: Frames, most_frames: int = 256) -> dict[str, Any]:
    """Return the statistics of each channel, in [0, 1] and shaped (3, 1, 1), from pixels of frames spread evenly."""
    total, height, width = frames.shape[:3]
    chosen = np.unique(np.linspace(0, total - 1, min(total, most_frames)).astype(np.int64))
    stride = math.ceil(math.sqrt(len(chosen) * height * width / _CAMERA_PIXELS))
    statistics = RunningStatistics(_CAMERA_PIXELS)
    for part in np.array_split(chosen, math.ceil(len(chosen) / 16)):
        statistics.update(frames[part][:, ::stride, ::stride].reshape(-1, 3).astype(np.float32) / 255)
    per_channel = {key: value for key, value in statistics.to_lists().items() if key != "count"}
    return {key: [[[channel]] for channel in value] for key, value in per_channel.items()} | {"count": [len(chosen)]}
