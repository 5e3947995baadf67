"""Use a simulator's environment as a robot."""

from collections.abc import Mapping

import numpy as np

from oat.interfaces import Environment


class SimulatedRobot:
    """Act as a robot in a simulated environment, in which no time passes between the actions."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._frame: Mapping[str, np.ndarray] = {}
        self.success = False
        self.steps = 0

    def reset(self, condition: int) -> None:
        """Begin an episode at an initial condition."""
        self._frame = self._environment.reset(condition)
        self.success = False
        self.steps = 0

    def observe(self) -> Mapping[str, np.ndarray]:
        """Return what was seen after the last action."""
        return self._frame

    def act(self, action: np.ndarray) -> None:
        """Execute one action at once; it is finished when this returns."""
        outcome = self._environment.step(action)
        self._frame = outcome.observation
        self.success = outcome.success
        self.steps += 1

    def stop(self) -> None:
        """Do nothing: without an action, simulated time stands still."""

    def let_pass(self) -> None:
        """Let one step of simulated time pass without a motion."""
        self.act(self._environment.hold())
