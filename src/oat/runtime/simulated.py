"""A simulator's environment as a robot."""

from collections.abc import Mapping

import numpy as np

from oat.interfaces import Environment


class SimulatedRobot:
    """Its time passes in steps: one for every action, and one whenever it is told to hold still."""

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
        self._frame, self.steps = dict(outcome.observation), self.steps + 1
        self.success = self.success or outcome.success

    def stop(self) -> None:
        self.act(self._environment.hold())
