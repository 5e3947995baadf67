"""When to ask the policy: for few episodes at a time it costs nearly as much as for many, and simulators need the time.

A batch of r chunks that takes p seconds and lets r simulators go on for s seconds each costs p / (r s) of their time.
"""

import math

_SHARE = 1 / 3  # of the simulators' time that the policy may take
_MEMORY = 0.9  # of earlier measures, in the running means


class BatchSizer:
    """How many episodes wait for a chunk before it is computed, and how many run side by side; from what it takes."""

    def __init__(self, batch: int, processes: int) -> None:
        self._batch, self._processes = batch, processes
        self._prediction = self._segment = 0.0

    def saw_prediction(self, seconds: float) -> None:
        self._prediction = _mean(self._prediction, seconds)

    def saw_segment(self, seconds: float) -> None:
        self._segment = _mean(self._segment, seconds)

    @property
    def worthwhile(self) -> int:
        """Chunks to be computed together so that the policy keeps to its share and keeps up with all processes."""
        if not self._segment:
            return 1
        rows = self._prediction / self._segment * max(1 / _SHARE, self._processes)
        return min(max(1, math.ceil(rows)), self._batch)

    @property
    def episodes(self) -> int:
        """As many wait as run, and no process is idle while one of its own waits."""
        return 2 * max(self.worthwhile, self._processes)

    def should_predict(self, waiting: int, running: int) -> bool:
        """With few episodes left, half of them are enough."""
        return waiting >= min(self.worthwhile, math.ceil(running / 2))


def _mean(before: float, now: float) -> float:
    return _MEMORY * before + (1 - _MEMORY) * now if before else now
