"""Plan which trial comes when: blocks in which every method acts once, in an order that the operator does not know.

Within a block the objects are placed alike, so that methods can be compared pair by pair, and whatever drifts during
the day meets all of them. A letter is a method's place in its block: it means another method in the next one, so that
nobody gets used to "the good one".
"""

import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oat.data.shuffle import derive_key
from oat.robots.trials.config import Driving


@dataclass(frozen=True)
class Trial:
    """Name a trial by all that an operator may know of it."""

    task: str
    block: int
    letter: str

    @property
    def opens_block(self) -> bool:
        """Return whether the trial is the first of its block, for which the objects are placed anew."""
        return self.letter == string.ascii_uppercase[0]


@dataclass(frozen=True)
class TrialPlan:
    """Hold everything that a trial's outcome depends on, apart from the policies; it is the first line of the log."""

    methods: Mapping[str, int | None]
    """By method name the number of tokens K to act from, None for all."""
    tasks: tuple[str, ...]
    trials: int
    """Trials of each method at each task, which is the number of blocks."""
    seed: int
    robot: str
    driving: Driving

    def order(self) -> list[Trial]:
        """Return all trials in their order: task after task, because another task means other objects."""
        letters = string.ascii_uppercase[: len(self.methods)]
        return [Trial(task, block, each) for task in self.tasks for block in range(self.trials) for each in letters]

    def method(self, trial: Trial) -> str:
        """Return the name of the method that acts in a trial."""
        # Sorting by a hash gives the same order on every machine, without anything but the seed in the log.
        drawn = sorted(self.methods, key=lambda name: derive_key(self.seed, trial.task, trial.block, name))
        return drawn[string.ascii_uppercase.index(trial.letter)]

    def sampling_seed(self, trial: Trial) -> int:
        """Return the seed of the policy's random numbers, which all methods of a block share."""
        return derive_key(self.seed, trial.task, trial.block)

    def differences(self, other: "TrialPlan") -> list[str]:
        """Return what is not the same in another plan, told as "tasks: a, not b"."""
        mine = asdict(self)
        others = asdict(other)
        return [f"{name}: {mine[name]}, not {others[name]}" for name in mine if mine[name] != others[name]]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TrialPlan":
        """Return the plan in the first line of a log."""
        return cls(**{**values, "tasks": tuple(values["tasks"]), "driving": Driving(**values["driving"])})
