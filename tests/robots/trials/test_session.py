"""Trials with a robot, methods and a judge in Python: what is run, what is written, and what goes wrong."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oat.errors import PolicyServerError, UndecodableTokens
from oat.interfaces import Robot
from oat.robots.trials.log import TrialLog, TrialRecord
from oat.robots.trials.session import Homing, Judge, Judgement, run_trials
from oat.serving.client import Reply
from tests.robots.trials.stage import MOST_LOOKS, QUICK, HomingPoint, Point, Pusher, Referee, new_log

FORCES = {"DP": 0.0, "OAT_1": 0.01, "OAT_8": 2.0}


def _methods() -> dict[str, Pusher]:
    return {name: Pusher(force) for name, force in FORCES.items()}


def test_a_series_is_made_to_its_end(tmp_path: Path) -> None:
    log, robot, methods = new_log(tmp_path), Point(), _methods()
    judge = Referee(robot)
    assert isinstance(robot, Robot)
    assert not isinstance(robot, Homing)
    assert isinstance(judge, Judge)
    finished = list[TrialRecord]()
    run_trials(log, robot, judge, methods, finished.append)
    assert judge.prepared == log.plan.order()
    assert finished == log.records
    assert log.remaining == []
    for record in TrialLog.read(log.path).records:
        strong = log.plan.method(record.trial) == "OAT_8"
        assert record.verdict == ("success" if strong else "failure")
        assert record.judge == "referee"
        assert record.steps == (5 if strong else MOST_LOOKS)
        assert record.chunks == (1 if strong else 3)  # of 16 actions
        assert record.tokens == record.chunks
        assert (record.samples, record.decoding) == (None, None)  # nobody told
    tasks, noise = zip(*methods["DP"].asked[2:], strict=True)
    assert set(tasks) == {"push", "pull"}
    assert {number for seed, number in noise} >= {0}
    seeds = [{seed for _, (seed, _) in method.asked[2:]} for method in methods.values()]
    assert len(seeds[0]) == 6
    assert seeds[0] == seeds[1] == seeds[2]  # the same random numbers for all methods of a block


def test_time_ends_a_trial(tmp_path: Path) -> None:
    log, robot = new_log(tmp_path, tasks=("push",), trials=1, driving=replace(QUICK, fps=10, seconds=0.5)), Point()
    run_trials(log, robot, Referee(robot), _methods())
    weak = [record for record in log.records if record.verdict == "failure"]
    assert len(weak) == 2
    assert all(record.steps <= 6 and record.seconds >= 0.5 for record in weak)


def test_void_trials_are_repeated_and_a_judge_can_stop(tmp_path: Path) -> None:
    log, robot = new_log(tmp_path), Point()
    judge = Referee(robot, Judgement("void", "bumped"), Judgement("success", "barely"), stop_at=3)
    run_trials(log, robot, judge, _methods())
    first, second = log.plan.order()[:2]
    assert judge.prepared == [first, first, second]
    assert [(each.verdict, each.remark) for each in log.records[:2]] == [("void", "bumped"), ("success", "barely")]
    again = new_log(tmp_path)
    judge = Referee(robot)
    run_trials(again, robot, judge, _methods())
    assert judge.prepared == log.plan.order()[2:]


def test_a_robot_goes_home_before_every_trial(tmp_path: Path) -> None:
    robot = HomingPoint()
    run_trials(new_log(tmp_path, tasks=("push",), trials=1), robot, Referee(robot), _methods())
    assert robot.told.count("home") == 3
    assert [robot.told[place - 1] for place, told in enumerate(robot.told) if told == "home"][1:] == ["stop", "stop"]


@pytest.mark.parametrize(
    "problem", [KeyboardInterrupt(), PolicyServerError("the cable fell out"), ValueError("joint\n3")]
)
def test_what_cannot_be_judged_is_void_and_the_robot_stops(tmp_path: Path, problem: BaseException) -> None:
    log, robot = new_log(tmp_path), Point()

    def fail(action: np.ndarray) -> None:
        raise problem

    robot.act = fail  # type: ignore[method-assign]
    with pytest.raises(type(problem)):
        run_trials(log, robot, Referee(robot), _methods())
    assert robot.told == ["stop"]
    (record,) = TrialLog.read(log.path).records
    assert record.verdict == "void"
    assert record.remark == f"{type(problem).__name__}: {problem}".rstrip(": ").replace("\n", " ")
    assert log.remaining == log.plan.order()


class Refusing(Pusher):
    def infer(self, *_: object) -> Reply:
        raise PolicyServerError("unknown task 'pull'")


class Undecodable(Pusher):
    """Every other chunk does not decode."""

    def infer(self, frames: object, task: str, noise: tuple[int, int], previous: np.ndarray | None = None) -> Reply:
        self.asked.append((task, noise))
        if len(self.asked) % 2:
            raise UndecodableTokens("not this time")
        return Reply(np.full((32, 1), self.force, np.float32), 1, 1.0, 1.0)


def test_methods_that_do_not_fit_are_found_before_anything_moves(tmp_path: Path) -> None:
    log, robot = new_log(tmp_path), Point()
    with pytest.raises(PolicyServerError, match="unknown task"):
        run_trials(log, robot, Referee(robot), {**_methods(), "OAT_8": Refusing(1)})
    assert robot.told == []
    assert not log.path.exists()


def test_tokens_that_do_not_decode_only_cost_time(tmp_path: Path) -> None:
    log, robot = new_log(tmp_path, methods={"FAST": None}, tasks=("push",), trials=2), Point()
    run_trials(log, robot, Referee(robot), {"FAST": Undecodable(2)})
    assert [record.verdict for record in log.records] == ["success", "success"]
    assert [record.undecodable for record in log.records] == [0, 1]
    assert log.records[1].holds == 1
