"""Rehearse a series of trials without a robot and without a person: a simulator acts, and judges itself.

oat trials LOG … --robot oat.robots.trials.rehearsal:metaworld

The name after the colon may be that of any registered simulator.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from oat.robots.simulated import SimulatedRobot
from oat.robots.trials.log import SIMULATOR
from oat.robots.trials.plan import Trial
from oat.robots.trials.session import Judgement
from oat.sims import SIMULATORS, load_simulator


class Rehearsal:
    """Act as a simulated robot and as its judge: every block is an initial condition, which all methods meet."""

    name = SIMULATOR

    def __init__(self, simulator: str) -> None:
        self._simulator = load_simulator(simulator)
        self._max_steps = self._simulator.protocol.max_steps
        self._robots: dict[str, SimulatedRobot] = {}
        """The robot of the current task; large simulators' tasks do not fit into memory together."""

    @property
    def _robot(self) -> SimulatedRobot:
        (robot,) = self._robots.values()
        return robot

    def prepare(self, trial: Trial) -> bool:
        """Reset the simulator to the initial condition of the trial's block."""
        if trial.task not in self._robots:
            self._robots = {trial.task: SimulatedRobot(self._simulator.make(trial.task))}
        self._robot.reset(self._simulator.conditions(trial.task, "reporting")[trial.block])
        return True

    def observe(self) -> Mapping[str, np.ndarray]:
        """Return what the simulated robot sees after its last action."""
        return self._robot.observe()

    def act(self, action: np.ndarray) -> None:
        """Execute one action of a method in the simulator."""
        self._robot.act(action)

    def stop(self) -> None:
        """Hold still for one step, unless the trial is over."""
        if not self.finished():  # where a method has no action, its time passes all the same
            self._robot.let_pass()

    def finished(self) -> bool:
        """Return whether the task is done, or the protocol's time is over."""
        return self._robot.success or self._robot.steps >= self._max_steps

    def verdict(self, trial: Trial) -> Judgement:
        """Return what the simulator says of the trial."""
        return Judgement("success" if self._robot.success else "failure")


def __getattr__(name: str) -> Callable[[], Rehearsal]:
    """Return the function that makes the rehearsal of a registered simulator, as `--robot` names it."""
    if name in SIMULATORS:
        return partial(Rehearsal, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names of the registered simulators, so that a mistyped one can be corrected."""
    return [*globals(), *SIMULATORS]
