"""Make one trial after the other: a scene is set, a method drives the robot, and a judge says whether it succeeded."""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

import numpy as np

from oat.errors import UndecodableTokens
from oat.interfaces import Robot
from oat.robots.loop import ChunkSource, LoopConfig, LoopReport, drive
from oat.robots.pace import Pace
from oat.robots.trials.log import TrialLog, TrialRecord, Verdict
from oat.robots.trials.plan import Trial, TrialPlan
from oat.serving.client import stack_history


@dataclass(frozen=True)
class Judgement:
    """Hold what a judge says of a trial."""

    verdict: Verdict
    remark: str = ""


@runtime_checkable
class Judge(Protocol):
    """Set the scene, end a trial and judge it, without being told the method."""

    name: str
    """The name that is written beside every verdict."""

    def prepare(self, trial: Trial) -> bool:
        """Set the scene of a trial; return False to stop the series here."""
        ...

    def finished(self) -> bool:
        """Return whether the trial is over; asked at every step of the robot, so it must answer at once."""
        ...

    def verdict(self, trial: Trial) -> Judgement:
        """Return the judgement of a trial; asked when the robot has stopped."""
        ...


@runtime_checkable
class Homing(Protocol):
    """Describe a robot that can return to a start position by itself."""

    def home(self) -> None:
        """Go to the position where every trial begins."""
        ...


@runtime_checkable
class DescribedSource(Protocol):
    """Describe a source that tells how its chunks are drawn, as a `PolicyClient` does."""

    @property
    def samples(self) -> int | None:
        """Return how many chunks are drawn for each that is given, None if that is not known."""
        ...

    @property
    def decoding(self) -> str | None:
        """Return the decoding's name, None if that is not known."""
        ...


def run_trials(
    log: TrialLog,
    robot: Robot,
    judge: Judge,
    sources: Mapping[str, ChunkSource],
    finish: Callable[[TrialRecord], None] = lambda record: None,
) -> None:
    """Make the trials that are missing in the log, until there are none or the judge stops.

    `sources` give each method's chunks. Before the first trial every one of them is asked for a chunk of every task, so
    that what does not fit together is found while nothing moves.
    """
    asked = False
    while (trial := next(iter(log.remaining), None)) is not None and judge.prepare(trial):
        if isinstance(robot, Homing):
            robot.home()
        if not asked:
            _ask_all(log.plan, robot.observe(), sources)
            asked = True
        finish(_run(log, trial, robot, judge, sources[log.plan.method(trial)]))


def _ask_all(plan: TrialPlan, frame: Mapping[str, np.ndarray], sources: Mapping[str, ChunkSource]) -> None:
    """Ask every method for a chunk of every task, so that an error appears before the robot moves."""
    for method in plan.methods:
        source = sources[method]
        for task in plan.tasks:
            try:
                source.infer(stack_history(deque([frame], source.obs_horizon)), task, (0, 0))
            except UndecodableTokens:
                continue  # it fits, and another draw may decode


def _run(log: TrialLog, trial: Trial, robot: Robot, judge: Judge, source: ChunkSource) -> TrialRecord:
    """Make one trial, from the robot's first motion to its line in the log."""
    loop = _loop(log.plan, trial)
    report = LoopReport()
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    begin = time.perf_counter()
    end = begin + log.plan.driving.seconds

    def enter(judgement: Judgement, seconds: float) -> TrialRecord:
        judged = (judgement.verdict, judgement.remark, judge.name, begun, round(seconds, 2))
        samples, decoding = _drawing(source)
        record = TrialRecord(trial, *judged, **asdict(report), samples=samples, decoding=decoding)
        log.append(record)
        return record

    try:
        report = drive(robot, source, trial.task, loop, lambda: judge.finished() or time.perf_counter() >= end)
        seconds = time.perf_counter() - begin
        judgement = judge.verdict(trial)
    except BaseException as error:  # it can no longer be judged, and what was begun must not vanish
        reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
        enter(Judgement("void", reason), time.perf_counter() - begin)
        raise
    return enter(judgement, seconds)


def _drawing(source: ChunkSource) -> tuple[int | None, str | None]:
    """Return the samples and the decoding's name, as far as the source tells."""
    return (source.samples, source.decoding) if isinstance(source, DescribedSource) else (None, None)


def _loop(plan: TrialPlan, trial: Trial) -> LoopConfig:
    """Return the configuration of the robot loop for a trial."""
    driving = plan.driving
    pace = {each.name: getattr(driving, each.name) for each in fields(Pace)}
    return LoopConfig(
        **pace,
        max_steps=math.ceil(driving.fps * driving.seconds) + 1,  # the clock ends it
        seed=plan.sampling_seed(trial),
    )
