"""A series of trials without a robot and without a person: a simulator acts, and judges itself.

oat trials SHEET … --robot oat.robots.trials.rehearsal:metaworld
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from oat.robots.simulated import SimulatedRobot
from oat.robots.trials.log import SIMULATOR
from oat.robots.trials.plan import Trial
from oat.robots.trials.session import Judgement
from oat.sims import load_simulator
from oat.sims.config import SimulatorName


class Rehearsal:
    """A robot and its judge: every block is an initial condition, which all methods meet."""

    name = SIMULATOR

    def __init__(self, simulator: SimulatorName) -> None:
        self._simulator = load_simulator(simulator)
        self._max_steps = self._simulator.protocol.max_steps
        self._robots: dict[str, SimulatedRobot] = {}
        """The current task's."""

    @property
    def _robot(self) -> SimulatedRobot:
        (robot,) = self._robots.values()
        return robot

    def prepare(self, trial: Trial) -> bool:
        if trial.task not in self._robots:
            self._robots = {trial.task: SimulatedRobot(self._simulator.make(trial.task))}
        self._robot.reset(self._simulator.conditions(trial.task, "reporting")[trial.block])
        return True

    def observe(self) -> Mapping[str, np.ndarray]:
        return self._robot.observe()

    def act(self, action: np.ndarray) -> None:
        self._robot.act(action)

    def stop(self) -> None:
        if not self.finished():  # where a method has no action, its time passes all the same
            self._robot.let_pass()

    def finished(self) -> bool:
        return self._robot.success or self._robot.steps >= self._max_steps

    def verdict(self, trial: Trial) -> Judgement:
        return Judgement("success" if self._robot.success else "failure")


metaworld, robomimic, libero = (partial(Rehearsal, name) for name in ("metaworld", "robomimic", "libero"))
