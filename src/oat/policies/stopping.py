"""When generation stops: at its end, after every step, before a deadline, or by a rule of your own.

A new rule is one class, whose `wants_chunk` is asked after every step, and one line in `STOPPING_RULES`.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from oat.errors import unknown_name

_REMEMBERED = 100  # durations that an estimate is made of
_CAREFUL = 0.9  # the quantile of them that is reckoned with


class StepTimes:
    """Remember how long steps took lately, and making a chunk of what there was, in seconds."""

    def __init__(self) -> None:
        self.step: deque[float] = deque(maxlen=_REMEMBERED)
        self.finish: deque[float] = deque(maxlen=_REMEMBERED)

    def until_next_chunk(self) -> float:
        """Return a careful estimate of one more step and the chunk after it; infinite while nothing is known."""
        return _quantile(self.step) + _quantile(self.finish)


class StoppingRule:
    """Decide after which steps a chunk is made; this one makes it of the whole sequence, at its end.

    A rule is made for one prediction, when that begins. A predictor that gives one chunk stops at the first that its
    rule wants; one that streams goes on to the next.
    """

    watches: ClassVar[bool] = False
    """Whether it has to be asked after every step; otherwise all of them may be done in one piece."""

    def start(self, times: StepTimes) -> None:
        """Take notice of how long steps took in earlier predictions of as many rows."""

    def wants_chunk(self, log_probabilities: Float[Tensor, " batch"] | None = None) -> bool:
        """Return whether to make a chunk now; asked after every step, the last one excepted.

        Where steps are tokens, their log-probabilities tell how sure the policy was of the last one.
        """
        return False

    def got_chunk(self) -> None:
        """Take notice that the chunk has been made."""


class EveryStep(StoppingRule):
    """Make a chunk after every step, as streaming does."""

    watches = True

    def wants_chunk(self, log_probabilities: Float[Tensor, " batch"] | None = None) -> bool:
        """Return True, whatever the step was."""
        return True


class Deadline(StoppingRule):
    """Make a chunk when one more step would make it late; never before the first step."""

    watches = True

    def __init__(self, milliseconds: float) -> None:
        self._last = time.perf_counter()
        self._end = self._last + milliseconds / 1e3
        self._steps = 0
        self.start(StepTimes())

    def start(self, times: StepTimes) -> None:
        """Estimate how long one more step and the chunk after it will take."""
        self._times = times
        self._needed = times.until_next_chunk()

    def wants_chunk(self, log_probabilities: Float[Tensor, " batch"] | None = None) -> bool:
        """Return whether one more step would miss the deadline, and remember how long this one took."""
        now = time.perf_counter()
        if self._steps or not self._times.step:  # the first one includes reading the observation
            self._times.step.append(now - self._last)
        self._last = now
        self._steps += 1
        return now + self._needed > self._end

    def got_chunk(self) -> None:
        """Remember how long making the chunk took."""
        self._times.finish.append(time.perf_counter() - self._last)


STOPPING_RULES: dict[str, type[StoppingRule]] = {
    "whole": StoppingRule,
    "every_step": EveryStep,
    "deadline": Deadline,
}


def make_stopping_rule(name: str, *arguments: float) -> StoppingRule:
    """Return a rule by its name, such as "deadline" with its milliseconds, or raise `UnknownName`."""
    if name not in STOPPING_RULES:
        raise unknown_name("stopping rule", name, STOPPING_RULES)
    return STOPPING_RULES[name](*arguments)


def _quantile(durations: Iterable[float]) -> float:
    ordered = sorted(durations)
    return ordered[int(_CAREFUL * len(ordered))] if ordered else float("inf")
