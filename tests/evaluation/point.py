"""A robot that is a point: actions move it, the goal is where the condition says."""

import os
from pathlib import Path

import numpy as np

from oat.evaluation.protocol import Protocol
from oat.interfaces import Outcome
from tests.tokenizers.fitted import DIM

STATE = "observation.state"
CRASH_ONCE, CRASH_ALWAYS, FAIL_ALWAYS = 901, 902, 903
"""Conditions in which the simulator dies the first time, dies always, raises always."""


class PointEnv:
    """Succeeds after `condition` steps; the state counts resets and steps, so that tests can see what was seen."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def reset(self, condition: int) -> dict[str, np.ndarray]:
        self.condition, self.steps, self.held = condition, 0, 0
        self.position = np.full(DIM, condition / 100, np.float32)
        return self._observe()

    def step(self, action: np.ndarray) -> Outcome:
        marker = self._folder / "crashed"
        if self.condition == CRASH_ALWAYS or (self.condition == CRASH_ONCE and not marker.exists()):
            marker.touch()
            os._exit(7)
        if self.condition == FAIL_ALWAYS:
            raise ValueError("the physics exploded")
        self.steps += 1
        self.position = self.position + 0.1 * np.asarray(action, np.float32)
        success = self.steps >= self.condition
        return Outcome(self._observe(), success, min(1.0, self.steps / max(self.condition, 1)))

    def hold(self) -> np.ndarray:
        return np.zeros(DIM, np.float32)

    def _observe(self) -> dict[str, np.ndarray]:
        return {STATE: np.append(self.position, np.float32(self.steps))}


def make_point(protocol: Protocol, task: str) -> PointEnv:
    return PointEnv(Path(task))
