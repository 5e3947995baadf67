"""What a trial is: one attempt to break a promise, a function of its kind, the campaign's seed and its own number."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Place:
    """Name where a trial works, and where it finds what all trials share."""

    folder: Path
    """Empty at first, and the trial's own."""
    workshop: Path


Run = Callable[[str, np.random.Generator, Place], int]
"""Makes one trial against a target and returns how many attempts that were, or raises `Broken`."""


@dataclass(frozen=True)
class Outcome:
    """Say what was tried, how many attempts that were, and what broke."""

    target: str
    attempts: int = 1
    failure: str | None = None


@dataclass(frozen=True)
class Kind:
    """Describe one kind of trials."""

    run: Run
    targets: tuple[str, ...]
    """What is tried in turn."""
    goal: int
    """Attempts of all targets together, after which the campaign has enough of this kind."""
    share: float = 1.0
    """How much of the time this kind gets, compared with others."""

    def try_once(self, number: int, generator: np.random.Generator, place: Place) -> Outcome:
        """Make the trial of a number; all that is random in it comes from the generator."""
        target = self.targets[number % len(self.targets)]
        try:
            return Outcome(target, self.run(target, generator, place))
        except Broken as error:
            return Outcome(target, 1, str(error))


class Broken(Exception):
    """A promise did not hold."""


def generator_of(kind: str, seed: int, number: int) -> np.random.Generator:
    """Return the source of all that is random in a trial."""
    return np.random.default_rng([seed, number, *kind.encode()])
