"""The robot loop: rate, overlap, blending, limits, lost connections, and what it records."""

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oat.data.episodes import STATE, open_dataset
from oat.data.lerobot import LeRobotWriter
from oat.errors import InvalidOption, PolicyServerError, UndecodableTokens
from oat.interfaces import Robot
from oat.robots.loop import Limits, LoopConfig, UpcomingActions, drive
from oat.serving.client import PolicyClient, RemotePolicy, Reply
from tests.policies.small import STATE_DIM, autoregressive
from tests.serving.running import serving

HORIZON = 12


class Point:
    """A robot whose state counts its actions, and which remembers what it was told."""

    def __init__(self) -> None:
        self.actions: list[np.ndarray] = []
        self.told: list[str] = []
        self.times: list[float] = []

    def observe(self) -> dict[str, np.ndarray]:
        return {STATE: np.full(STATE_DIM, len(self.actions), np.float32)}

    def act(self, action: np.ndarray) -> None:
        self.actions.append(action)
        self.told.append("act")
        self.times.append(time.perf_counter())

    def stop(self) -> None:
        self.told.append("stop")


class Countdown:
    """A client whose chunk, asked for at step r, is r, r + 1, …, plus the number of the request times `offset`."""

    def __init__(self, offset: float = 0.0, delay: float = 0.0) -> None:
        self.obs_horizon = 2
        self.asked: list[tuple[float, float]] = []
        self.rests: list[np.ndarray | None] = []
        self.offset, self.delay, self.lost = offset, delay, threading.Event()

    def infer(
        self, frames: Mapping[str, np.ndarray], task: str, noise: tuple[int, int], previous: np.ndarray | None = None
    ) -> Reply:
        earlier, now = frames[STATE][:, 0]
        self.rests.append(previous)
        time.sleep(self.delay)
        while self.lost.is_set():
            time.sleep(0.01)
        actions = now + np.arange(HORIZON, dtype=np.float32)[:, None] + self.offset * len(self.asked)
        self.asked.append((float(earlier), float(now)))
        return Reply(actions, 8, 1.0, 1.0)


def _drive(robot: Point, client: Any, config: LoopConfig, **options: Any) -> Any:
    assert isinstance(robot, Robot)
    return drive(robot, client, "push", config, **options)


def test_what_would_be_executed_goes_along_with_a_request() -> None:
    robot, client = Point(), Countdown()
    _drive(robot, client, LoopConfig(fps=200, execute=8, ahead=0, blend=0, max_steps=20))
    assert client.rests[0] is None
    for (_, now), rest in zip(client.asked[1:], client.rests[1:], strict=True):
        assert rest is not None
        np.testing.assert_array_equal(rest[:, 0], now + np.arange(HORIZON - 8))


def test_the_next_chunk_is_inferred_while_the_current_one_executes() -> None:
    robot, client = Point(), Countdown(delay=0.02)
    report = _drive(robot, client, LoopConfig(fps=100, execute=8, ahead=4, max_steps=40))
    assert [float(action[0]) for action in robot.actions] == list(range(40))
    assert client.asked[:3] == [(0, 0), (3, 4), (7, 8)]
    assert robot.told[-1] == "stop"
    assert 1 <= report.holds <= 10  # before the first chunk only
    assert "stop" not in robot.told[report.holds : -1]
    assert (report.steps, report.discarded) == (40, 0)
    assert report.tokens == 8 * report.chunks


def test_the_rate_is_kept() -> None:
    robot = Point()
    _drive(robot, Countdown(), LoopConfig(fps=50, execute=8, max_steps=25))
    assert np.median(np.diff(robot.times)) == pytest.approx(0.02, abs=0.004)


def test_without_overlap_it_is_plain_receding_horizon() -> None:
    policy, config = autoregressive("oat"), LoopConfig(fps=1000, execute=6, ahead=0, blend=0, max_steps=20, seed=5)
    with serving(policy) as server, PolicyClient(f"ws://127.0.0.1:{server.port}") as client:
        robot = Point()
        report = _drive(robot, client, config)
        remote, expected = RemotePolicy(client, "push", 6, seed=5), Point()
        for _ in range(20):
            expected.act(remote.act(expected.observe()))
    np.testing.assert_array_equal(robot.actions, expected.actions)
    assert (report.chunks, report.holds) == (4, 0)


def _number(plan: UpcomingActions, step: int) -> float:
    action = plan.at(step)
    assert action is not None
    return float(action[0])


def test_a_new_chunk_takes_over_gradually() -> None:
    plan = UpcomingActions(blend=3)
    assert plan.at(0) is None
    plan.add(0, np.zeros((10, 1)), now=0)
    plan.add(4, np.full((10, 1), 8.0), now=6)
    assert [_number(plan, step) for step in range(6, 11)] == [2, 4, 6, 8, 8]
    assert _number(plan, 13) == 8  # the old one has ended
    assert plan.at(14) is None
    plan.add(8, np.zeros((10, 1)), now=8)  # another one, before the second has taken over: it begins where that is
    assert [_number(plan, step) for step in range(8, 12)] == [4.5, 4, 2, 0]
    robot = Point()
    _drive(robot, Countdown(offset=10), LoopConfig(fps=200, execute=6, ahead=2, blend=4, max_steps=30))
    assert np.abs(np.diff(np.stack(robot.actions)[:, 0])).max() < 6  # a jump of 10 in steps of a fifth


def test_limits_hold_for_every_action() -> None:
    limits = Limits(low=[-1, -1], high=[1, 0.5], max_change=(0.5, np.inf))
    assert limits.apply(np.array([5.0, 5.0]), None).tolist() == [1, 0.5]
    assert limits.apply(np.array([5.0, -5.0]), np.array([0.2, 0.5], np.float32)).tolist() == pytest.approx([0.7, -1])
    robot = Point()
    _drive(robot, Countdown(offset=10), LoopConfig(fps=500, max_steps=40, limits=Limits(0, 9, 2)))
    actions = np.stack(robot.actions)
    assert actions.min() >= 0
    assert actions.max() == 9
    assert np.abs(np.diff(actions, axis=0)).max() <= 2
    for wrong in ({"low": 1, "high": 0}, {"max_change": 0}):
        with pytest.raises(InvalidOption):
            Limits(**wrong)


def test_it_holds_still_while_the_connection_is_lost_and_then_goes_on() -> None:
    robot, client = Point(), Countdown()
    config = LoopConfig(fps=200, execute=8, ahead=4, max_steps=40, max_age=0.05)
    driving = ThreadPoolExecutor(1).submit(_drive, robot, client, config)
    while len(robot.actions) < 10:
        time.sleep(0.001)
    client.lost.set()
    time.sleep(0.3)
    held, executed = robot.told.count("stop"), len(robot.actions)
    assert robot.told[-10:] == ["stop"] * 10
    client.lost.clear()
    driving.result(20)
    assert robot.told.count("stop") >= held
    assert [float(action[0]) for action in robot.actions] == list(range(40))  # nothing skipped, nothing twice
    assert (executed, executed) in client.asked  # the chunk for what it saw before was too old: it asked again


class Stammering(Countdown):
    """Every third request gets tokens that do not decode."""

    def __init__(self) -> None:
        super().__init__()
        self.noise: list[tuple[int, int]] = []

    def infer(
        self, frames: Mapping[str, np.ndarray], task: str, noise: tuple[int, int], previous: np.ndarray | None = None
    ) -> Reply:
        self.noise.append(noise)
        if len(self.noise) % 3 == 1:
            raise UndecodableTokens("not this time")
        return super().infer(frames, task, noise)


@pytest.mark.parametrize("ahead", [0, 4])
def test_where_tokens_do_not_decode_others_are_asked_for(ahead: int) -> None:
    robot, client = Point(), Stammering()
    report = _drive(robot, client, LoopConfig(fps=500, execute=8, ahead=ahead, blend=0, max_steps=40, seed=5))
    assert [float(action[0]) for action in robot.actions] == list(range(40))
    assert report.undecodable >= 2
    assert robot.told[0] == "stop"  # the first chunk did not decode
    assert client.noise == [(5, number) for number in range(len(client.noise))]  # never the same draw again


def test_a_connection_that_stays_lost_stops_the_robot_and_keeps_what_it_did(tmp_path: Path) -> None:
    robot = Point()
    with serving(autoregressive("oat")) as server:
        client = PolicyClient(f"ws://127.0.0.1:{server.port}", patience=0.2)
        writer, thread = LeRobotWriter(tmp_path / "data", fps=100), ThreadPoolExecutor(1)
        config = LoopConfig(fps=100, execute=4, ahead=2, max_steps=1000)
        driving = thread.submit(drive, robot, client, "push", config, writer=writer)
        while len(robot.actions) < 5:
            time.sleep(0.01)
    with pytest.raises(PolicyServerError, match="cannot be reached"):
        driving.result(20)
    assert robot.told[-1] == "stop"
    writer.finish()
    (length,) = open_dataset(tmp_path / "data").lengths.tolist()
    assert length == len(robot.actions) < 1000


def test_what_it_did_is_recorded(tmp_path: Path) -> None:
    robot = Point()
    with LeRobotWriter(tmp_path / "data", fps=500) as writer:
        for _ in range(2):
            _drive(robot, Countdown(), LoopConfig(fps=500, max_steps=20), writer=writer)
    episodes = open_dataset(tmp_path / "data")
    assert episodes.lengths.tolist() == [20, 20]
    assert episodes.tasks == ("push",)
    np.testing.assert_array_equal(episodes.actions[:], np.stack(robot.actions))
    np.testing.assert_array_equal(episodes.observation(STATE)[np.arange(40)][:, 0], np.arange(40))


@pytest.mark.parametrize(
    "wrong", [{"fps": 0}, {"execute": 0}, {"ahead": 17}, {"blend": -1}, {"max_age": 0}, {"max_steps": 0}]
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        LoopConfig(**wrong)
