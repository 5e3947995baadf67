"""A robot, methods and a judge for tests of trials: a point that is pushed, and must get beyond a line."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from oat.data.episodes import STATE
from oat.robots.trials.config import Driving
from oat.robots.trials.log import TrialLog, TrialRecord, Verdict
from oat.robots.trials.plan import Trial, TrialPlan
from oat.robots.trials.session import Judgement
from oat.serving.client import Reply

QUICK = Driving(fps=2000, ahead=0, blend=0, max_age=60)
MOST_LOOKS = 40
METHODS: dict[str, int | None] = {"DP": None, "OAT_1": 1, "OAT_8": 8}


def make_plan(**changes: object) -> TrialPlan:
    values: dict[str, object] = {
        **{"methods": METHODS, "tasks": ("push", "pull"), "trials": 3, "seed": 7, "robot": "arm:connect"},
        **{"driving": QUICK},
    }
    return TrialPlan(**{**values, **changes})  # type: ignore[arg-type]


def fill(log: TrialLog, verdicts: Mapping[str, str]) -> TrialLog:
    """Judge every trial: by method, `+` for success and `-` for failure, one sign for each block of each task."""
    order = log.plan.order()
    blocks = [(task, block) for task in log.plan.tasks for block in range(log.plan.trials)]
    for trial in order:
        sign = verdicts[log.plan.method(trial)][blocks.index((trial.task, trial.block))]
        log.append(record(trial, "success" if sign == "+" else "failure"))
    return log


def record(trial: Trial, verdict: Verdict = "success", remark: str = "") -> TrialRecord:
    return TrialRecord(trial, verdict, remark, "operator", "2026-01-01T00:00:00+00:00", 3.0, steps=30, holds=10)


class Pusher:
    """A method that pushes with a constant force."""

    obs_horizon = 2

    def __init__(self, force: float) -> None:
        self.force = force
        self.asked: list[tuple[str, tuple[int, int]]] = []

    def infer(
        self, frames: Mapping[str, np.ndarray], task: str, noise: tuple[int, int], previous: np.ndarray | None = None
    ) -> Reply:
        assert frames[STATE].shape == (2, 1)
        self.asked.append((task, noise))
        return Reply(np.full((32, 1), self.force, np.float32), 1, 1.0, 1.0)


class Point:
    """A robot that remembers what it was told."""

    def __init__(self) -> None:
        self.position, self.told = 0.0, list[str]()

    def observe(self) -> dict[str, np.ndarray]:
        return {STATE: np.array([self.position], np.float32)}

    def act(self, action: np.ndarray) -> None:
        self.position += float(action[0])
        self.told.append("act")

    def stop(self) -> None:
        self.told.append("stop")


class HomingPoint(Point):
    def home(self) -> None:
        self.position = 0.0
        self.told.append("home")


class Referee:
    """Says yes beyond a line, or what was asked of him before; loses interest after a while."""

    name = "referee"

    def __init__(self, robot: Point, *first: Judgement, stop_at: int | None = None) -> None:
        self.robot, self._said, self._stop_at = robot, list(first), stop_at
        self.prepared: list[Trial] = []
        self._looks = 0

    def prepare(self, trial: Trial) -> bool:
        if len(self.prepared) == self._stop_at:
            return False
        self.prepared.append(trial)
        self.robot.position, self._looks = 0.0, 0
        return True

    def finished(self) -> bool:
        self._looks += 1
        return self.robot.position >= 10 or self._looks > MOST_LOOKS

    def verdict(self, trial: Trial) -> Judgement:
        return self._said.pop(0) if self._said else Judgement("success" if self.robot.position >= 10 else "failure")


def new_log(folder: Path, **changes: object) -> TrialLog:
    return TrialLog.open(folder / "trials.jsonl", make_plan(**changes))
