"""Batch sizes of the policy: a small batch costs nearly as much as a large one, and simulators need the time.

A batch of r chunks that takes p seconds and lets r simulators go on for s seconds each costs p / (r s) of their time.
"""

import math

_SHARE = 1 / 3  # of the simulators' time that the policy may take
_MEMORY = 0.9  # of earlier measures, in the running means


class BatchSizer:
    """Decide how many episodes wait for a chunk before it is computed, and how many run side by side.

    Both follow from what predictions and simulation are seen to take.
    """

    def __init__(self, batch: int, processes: int) -> None:
        self._batch = batch
        self._processes = processes
        self._prediction_seconds = 0.0
        self._segment_seconds = 0.0

    def saw_prediction(self, seconds: float) -> None:
        """Take note of how long the policy took for a batch."""
        self._prediction_seconds = _running_mean(self._prediction_seconds, seconds)

    def saw_segment(self, seconds: float) -> None:
        """Take note of how long a simulator took to execute the actions of a chunk."""
        self._segment_seconds = _running_mean(self._segment_seconds, seconds)

    @property
    def worthwhile(self) -> int:
        """Return how many chunks to compute together so that the policy keeps to its share and keeps up."""
        if not self._segment_seconds:
            return 1  # nothing is known yet, and nobody should wait to find out
        # With more processes than 1 / _SHARE it is their number that limits: all of them wait for one policy.
        rows = self._prediction_seconds / self._segment_seconds * max(1 / _SHARE, self._processes)
        return min(max(1, math.ceil(rows)), self._batch)

    @property
    def episodes(self) -> int:
        """Return how many episodes to run: as many wait as act, and no process is idle while one of its own waits."""
        return 2 * max(self.worthwhile, self._processes)

    def should_predict(self, waiting: int, running: int) -> bool:
        """Return whether enough episodes wait; of few that are left, half are enough, or all if the policy is slow."""
        # The last ones would wait for a batch that can no longer fill up. A batch costs the same however full it is:
        # where all simulators take less time than one batch, it is better filled with all of them.
        slow = self._prediction_seconds * self._processes >= running * self._segment_seconds
        left = running if slow else math.ceil(running / 2)
        return waiting >= min(self.worthwhile, left)


def _running_mean(before: float, now: float) -> float:
    return _MEMORY * before + (1 - _MEMORY) * now if before else now
