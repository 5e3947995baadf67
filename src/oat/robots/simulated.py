"""A simulator's environment as a robot."""

from collections.abc import Mapping

import numpy as np

from oat.interfaces import Environment


class SimulatedRobot:
    """While it does not act, no time passes, unless it is told to let a step pass."""

    def __init__(self, environment: Environment) -> None:
        self._environment, self._frame = environment, dict[str, np.ndarray]()
        self.success, self.steps = False, 0

    def reset(self, condition: int) -> None:
        """Begin an episode."""
        self._frame, self.success, self.steps = dict(self._environment.reset(condition)), False, 0

    def observe(self) -> Mapping[str, np.ndarray]:
        return self._frame

    def act(self, action: np.ndarray) -> None:
        outcome = self._environment.step(action)
        self._frame, self.success, self.steps = dict(outcome.observation), outcome.success, self.steps + 1

    def stop(self) -> None:
        """It stands still by itself."""

    def let_pass(self) -> None:
        """One step without a motion."""
        self.act(self._environment.hold())
