"""Back into the simulator where a demonstration was: its beginning, its actions up to a step, then others."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from oat.data.episodes import STATE, Episodes
from oat.data.provenance import read_provenance
from oat.errors import SimulatorError
from oat.interfaces import Environment, Filmable, Simulator
from oat.sims.collect import attempt_seed

Picture = UInt8[np.ndarray, "size size 3"]

_SAME = 1e-5  # how far observations that count as equal may differ
_SIZE = 480
_MOVED = 24  # of 255: a pixel that changes by more shows something that moved


@dataclass(frozen=True)
class Execution:
    """What came of some actions."""

    path: Float32[np.ndarray, "points 3"]
    """The hand, before the first action and after each."""
    frames: list[Picture]
    """At the steps that were asked for."""


@dataclass
class Stage:
    """The environments of a data set's tasks, and the initial conditions of its scripted demonstrations."""

    simulator: Simulator
    data: Path
    _environments: dict[str, Environment] = field(default_factory=dict)
    _beginnings: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)

    def environment(self, task: str) -> Environment:
        if task not in self._environments:
            self._environments[task] = self.simulator.make(task)
        return self._environments[task]

    def find_condition(self, episodes: Episodes, number: int) -> int:
        """The initial condition of an episode, which its actions lead from to its observations again.

        A data set records how many attempts were made at each task, and not which of them were kept: the right one is
        that at which the first observation is the episode's.
        """
        task, frames = episodes.task(number), episodes.frames(number)
        recorded, environment = episodes.observation(STATE)[frames], self.environment(task)
        if task not in self._beginnings:
            self._beginnings[task] = {seed: environment.reset(seed)[STATE] for seed in self._attempts(task)}
        alike = (seed for seed, first in self._beginnings[task].items() if np.abs(first - recorded[0]).max() <= _SAME)
        condition = next(alike, None)
        if condition is None:
            raise SimulatorError("no attempt that the data set tells of begins like the demonstration")
        environment.reset(condition)
        for action, expected in zip(episodes.actions[frames[:-1]], recorded[1:], strict=True):
            if np.abs(environment.step(action).observation[STATE] - expected).max() > _SAME:
                raise SimulatorError("the demonstrated actions do not lead to the recorded observations again")
        return condition

    def _attempts(self, task: str) -> Iterator[int]:
        """The initial conditions of all attempts that the data set tells of."""
        for entry in read_provenance(self.data):
            attempts = entry.get("tasks", {}).get(task, {}).get("attempts", 0)
            yield from (attempt_seed(entry["seed"], task, attempt) for attempt in range(attempts))

    def execute(
        self, task: str, condition: int, before: np.ndarray, actions: np.ndarray, pictures: Collection[int] = ()
    ) -> Execution:
        """Take the actions after those that come before, with pictures after so many of them."""
        environment = self.environment(task)
        hand = self.simulator.hand_position
        assert hand is not None
        state = environment.reset(condition)[STATE]
        for action in before:
            state = environment.step(action).observation[STATE]
        path, frames = [state[hand]], []
        for step in range(len(actions) + 1):
            if step in pictures:
                frames.append(_look(environment))
            if step < len(actions):
                path.append(environment.step(actions[step]).observation[STATE][hand])
        return Execution(np.stack(path), frames)


def _look(environment: Environment) -> Picture:
    assert isinstance(environment, Filmable)
    return environment.render(_SIZE).copy()


def ghosted(frames: Sequence[Picture]) -> Picture:
    """One picture of several moments, each a ghost, the last one the least."""
    weights = np.linspace(1, 2, len(frames))
    weights[-1] *= 3
    return np.average(np.stack(frames), axis=0, weights=weights).round().astype(np.uint8)


def frame_of_motion(frames: Sequence[Picture]) -> tuple[slice, slice]:
    """The square of the pictures in which anything moves, with some of what is around it."""
    places = np.argwhere(np.ptp(np.stack(frames), axis=0).max(-1) > _MOVED)
    if len(places) == 0:
        return slice(None), slice(None)
    low, high = np.quantile(places, (0.01, 0.99), axis=0)
    side = min(1.3 * (high - low).max(), _SIZE)
    corner = np.clip((low + high - side) / 2, 0, _SIZE - side).astype(int)
    rows, columns = (slice(first, first + int(side)) for first in corner.tolist())
    return rows, columns
