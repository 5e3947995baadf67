"""A robot that is a point, and needs as many steps as the condition says; it imports little, so workers start fast."""

import os
import time
from pathlib import Path

import numpy as np

from oat.data.episodes import STATE
from oat.interfaces import Outcome
from oat.protocol import Protocol

DIM = 3
FAIL_ALWAYS, CRASH_ONCE, CRASH_ALWAYS = 901, 902, 903
"""Conditions in which the simulator raises always, dies the first time, dies always (and from there on)."""
UNBUILDABLE = "unbuildable"


class PointEnv:
    """Succeeds after `condition` steps; the state counts resets and steps, so that tests can see what was seen."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def reset(self, condition: int) -> dict[str, np.ndarray]:
        self.condition, self.steps = condition, 0
        self.position = np.full(DIM, condition / 100, np.float32)
        return self._observe()

    def step(self, action: np.ndarray, observe: bool = True) -> Outcome:
        marker = self._folder / "crashed"
        if self.condition in (CRASH_ALWAYS, CRASH_ALWAYS + 10) or (
            self.condition == CRASH_ONCE and not marker.exists()
        ):
            marker.touch()
            time.sleep(0.2)  # Ray loses an answer that is still on its way when the process dies, and blames its worker
            os._exit(7)
        if self.condition == FAIL_ALWAYS:
            raise ValueError("the physics exploded")
        self.steps += 1
        self.position = self.position + 0.1 * np.asarray(action, np.float32)
        success = self.steps >= self.condition
        return Outcome(self._observe() if observe else {}, success, min(1.0, self.steps / max(self.condition, 1)))

    def hold(self) -> np.ndarray:
        return np.zeros(DIM, np.float32)

    def _observe(self) -> dict[str, np.ndarray]:
        return {STATE: np.append(self.position, np.float32(self.steps))}


class StoringPointEnv(PointEnv):
    """Begins at starts that are stored, as it says."""

    @property
    def start(self) -> str:
        return f"start {self.condition}"


class VisiblePointEnv(PointEnv):
    """Can be filmed, and leaves a mark where it was."""

    fps = 50.0

    def render(self, size: int) -> np.ndarray:
        with (self._folder / f"rendered-{self.condition}").open("a") as file:
            file.write(f"{self.steps}\n")
        return np.full((size, size, 3), 4 * self.steps, np.uint8)

    def foresee(self, actions: np.ndarray) -> np.ndarray:
        return np.linspace((0.0, 0.5), (1.0, 0.5), len(actions) + 1)


def make_point(protocol: Protocol, task: str) -> PointEnv:
    """The task is a folder for marks."""
    if task.endswith(UNBUILDABLE):
        raise RuntimeError("a mesh is missing")
    return VisiblePointEnv(Path(task)) if protocol.simulator == "visible point" else PointEnv(Path(task))
