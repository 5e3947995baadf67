"""Anytime generation: how long steps take lately, and whether one more still fits before a deadline."""

import time
from collections import deque
from collections.abc import Iterable
from typing import ClassVar

_REMEMBERED = 100  # durations that an estimate is made of
_CAREFUL = 0.9  # the quantile of them that is reckoned with


class StepTimes:
    """What generating a token (or a denoising step) took lately, and making a chunk of what there is, in seconds."""

    def __init__(self) -> None:
        self.step: deque[float] = deque(maxlen=_REMEMBERED)
        self.finish: deque[float] = deque(maxlen=_REMEMBERED)

    def until_next_chunk(self) -> float:
        """A careful estimate of one more step and the chunk after it; infinite while nothing is known."""
        return _quantile(self.step) + _quantile(self.finish)


class Pace:
    """When a chunk is wanted: only at the end."""

    watches: ClassVar[bool] = False
    """Whether it has to be asked after every step; otherwise all of them may be done in one piece."""

    def wants_chunk(self) -> bool:
        """Asked after every step, the last one excepted."""
        return False

    def got_chunk(self) -> None:
        """Told when the chunk has been made."""


class EveryStep(Pace):
    """A chunk after every step."""

    watches = True

    def wants_chunk(self) -> bool:
        return True


class Deadline(Pace):
    """A chunk when one more step would make it late; never before the first step."""

    watches = True

    def __init__(self, milliseconds: float, times: StepTimes) -> None:
        self._last = time.perf_counter()
        self._end = self._last + milliseconds / 1e3
        self._times, self._steps = times, 0
        self._needed = times.until_next_chunk()

    def wants_chunk(self) -> bool:
        now = time.perf_counter()
        if self._steps or not self._times.step:  # the first one includes reading the observation
            self._times.step.append(now - self._last)
        self._last, self._steps = now, self._steps + 1
        return now + self._needed > self._end

    def got_chunk(self) -> None:
        self._times.finish.append(time.perf_counter() - self._last)


def _quantile(durations: Iterable[float]) -> float:
    ordered = sorted(durations)
    return ordered[int(_CAREFUL * len(ordered))] if ordered else float("inf")
