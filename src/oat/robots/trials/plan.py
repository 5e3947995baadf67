"""Which trial comes when: blocks in which every method acts once, in a random order that the operator does not know.

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
    """All that an operator may know."""

    task: str
    block: int
    letter: str

    @property
    def opens_block(self) -> bool:
        return self.letter == string.ascii_uppercase[0]


@dataclass(frozen=True)
class TrialPlan:
    """Everything that a trial's outcome depends on, apart from the policies; it is the first line of the sheet."""

    methods: Mapping[str, int | None]
    """By name the number of tokens K to act from, None for all."""
    tasks: tuple[str, ...]
    trials: int
    """Of each method at each task: the number of blocks."""
    seed: int
    robot: str
    driving: Driving

    def order(self) -> list[Trial]:
        """Task after task, because another task means other objects."""
        letters = string.ascii_uppercase[: len(self.methods)]
        return [Trial(task, block, each) for task in self.tasks for block in range(self.trials) for each in letters]

    def method(self, trial: Trial) -> str:
        """The key to the letters."""
        drawn = sorted(self.methods, key=lambda name: derive_key(self.seed, trial.task, trial.block, name))
        return drawn[string.ascii_uppercase.index(trial.letter)]

    def sampling_seed(self, trial: Trial) -> int:
        """Of the policy's random numbers: methods that are compared draw alike."""
        return derive_key(self.seed, trial.task, trial.block)

    def differences(self, other: "TrialPlan") -> list[str]:
        """What is not the same, told as "tasks: a, not b"."""
        mine, others = asdict(self), asdict(other)
        return [f"{name}: {mine[name]}, not {others[name]}" for name in mine if mine[name] != others[name]]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TrialPlan":
        return cls(**{**values, "tasks": tuple(values["tasks"]), "driving": Driving(**values["driving"])})
