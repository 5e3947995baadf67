"""Execute chunks in the simulator from where a demonstration was: its beginning, and its actions up to a step."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from oat.data.episodes import STATE, Episodes
from oat.data.provenance import read_provenance
from oat.errors import SimulatorError
from oat.experiments.overlays import Picture
from oat.interfaces import Environment, Filmable, Simulator
from oat.sims.collect import attempt_seed

_TOLERANCE = 1e-5  # how far observations that count as equal may differ: they are stored as float32
_PICTURE_SIZE = 480


@dataclass(frozen=True)
class Execution:
    """Hold the path of the hand and the pictures from executing some actions."""

    path: Float32[np.ndarray, "points axes"]
    """The hand's position, before the first action and after each."""
    frames: list[Picture]
    """Pictures at the steps that were asked for."""


@dataclass
class ChunkExecutor:
    """Bring the simulator back to where a scripted demonstration was, and execute chunks from there."""

    simulator: Simulator
    data: Path
    _environments: dict[str, Environment] = field(default_factory=dict)
    _first_states: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    """The first observation of every attempt at a task, by its initial condition."""

    def environment(self, task: str) -> Environment:
        """Return the environment of a task, which is made once because that takes seconds."""
        if task not in self._environments:
            self._environments[task] = self.simulator.make(task)
        return self._environments[task]

    def find_condition(self, episodes: Episodes, number: int) -> int:
        """Return the initial condition from which an episode's actions lead to its observations again.

        A data set records how many attempts were made at each task, and not which of them were kept: the right one is
        that at which the first observation is the episode's. Raise SimulatorError where there is none.
        """
        task = episodes.task(number)
        frames = episodes.frames(number)
        recorded = episodes.observation(STATE)[frames]
        condition = self._condition_with_first_state(task, recorded[0])
        if condition is None:
            raise SimulatorError("no attempt that the data set tells of begins like the demonstration")
        # Physics may differ between machines: replaying all actions shows whether this simulator is the recorded one.
        environment = self.environment(task)
        environment.reset(condition)
        for action, expected in zip(episodes.actions[frames[:-1]], recorded[1:], strict=True):
            if np.abs(environment.step(action).observation[STATE] - expected).max() > _TOLERANCE:
                raise SimulatorError("the demonstrated actions do not lead to the recorded observations again")
        return condition

    def _condition_with_first_state(self, task: str, state: np.ndarray) -> int | None:
        if task not in self._first_states:
            environment = self.environment(task)
            # Kept, because every episode of the task is looked up among them and a reset takes a while.
            self._first_states[task] = {seed: environment.reset(seed)[STATE] for seed in self._attempts(task)}
        candidates = self._first_states[task].items()
        return next((seed for seed, first in candidates if np.abs(first - state).max() <= _TOLERANCE), None)

    def _attempts(self, task: str) -> Iterator[int]:
        """Yield the initial conditions of all attempts at a task that the data set tells of."""
        for entry in read_provenance(self.data):
            attempts = entry.get("tasks", {}).get(task, {}).get("attempts", 0)
            yield from (attempt_seed(entry["seed"], task, attempt) for attempt in range(attempts))

    def execute(
        self, task: str, condition: int, before: np.ndarray, actions: np.ndarray, pictures: Collection[int] = ()
    ) -> Execution:
        """Execute actions after those that come `before`, with a picture after each number of them in `pictures`."""
        hand = self.simulator.hand_position
        assert hand is not None
        environment = self.environment(task)
        state = environment.reset(condition)[STATE]
        for action in before:
            state = environment.step(action).observation[STATE]
        path = [state[hand]]
        frames = []
        for step in range(len(actions) + 1):
            if step in pictures:
                frames.append(_take_picture(environment))
            if step < len(actions):
                path.append(environment.step(actions[step]).observation[STATE][hand])
        return Execution(np.stack(path), frames)


def _take_picture(environment: Environment) -> Picture:
    assert isinstance(environment, Filmable)
    # The renderer may draw the next picture into the same memory.
    return environment.render(_PICTURE_SIZE).copy()
