"""Drive a robot by a policy server at a fixed rate: the next chunk is inferred while the current one executes.

Time is counted in executed actions. A chunk that was asked for when the robot had executed r of them gives the actions
r, r + 1, …; when it arrives, it takes over from the one before it within a few steps.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from oat.data.lerobot import LeRobotWriter
from oat.errors import InvalidOption, UndecodableTokens
from oat.interfaces import Robot
from oat.robots.pace import Pace
from oat.serving.client import Reply, stack_history


@runtime_checkable
class ChunkSource(Protocol):
    """Give chunks for observations, as a `PolicyClient` does."""

    @property
    def obs_horizon(self) -> int:
        """Return H_o, the number of frames that the policy sees."""
        ...

    def infer(
        self,
        frames: Mapping[str, np.ndarray],
        task: str,
        noise: tuple[int, int],
        previous: np.ndarray | None = None,
    ) -> Reply:
        """Return a chunk for the last H_o frames; `noise` is the episode's seed and the number of the chunk.

        `previous` is what the robot would do from now on if no new chunk came, (steps, dim).
        """
        ...


@dataclass(frozen=True)
class Limits:
    """Bound the actions that the robot is given, for each dimension or for all alike."""

    low: Sequence[float] | float = -np.inf
    high: Sequence[float] | float = np.inf
    max_change: Sequence[float] | float = np.inf
    """Largest difference between an action and the one before it."""

    def __post_init__(self) -> None:
        if np.any(np.asarray(self.low) > np.asarray(self.high)) or np.any(np.asarray(self.max_change) <= 0):
            raise InvalidOption("limits need low ≤ high and a positive max_change")

    def apply(self, action: np.ndarray, previous: np.ndarray | None) -> np.ndarray:
        """Return the nearest action that is allowed after the previous one."""
        if previous is not None:
            action = np.clip(action, previous - self.max_change, previous + self.max_change)
        # The bounds come last: they hold even where the change from an earlier action would have to be larger.
        return np.clip(action, self.low, self.high).astype(np.float32)


@dataclass(frozen=True)
class LoopConfig(Pace):
    """Configure the rate, the chunks and the limits of the robot loop."""

    max_steps: int = 500
    """Actions after which the episode ends."""
    seed: int = 0
    """Seed of the policy's sampling."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_steps < 1:
            raise InvalidOption(f"max_steps must be positive, got {self.max_steps}")


@dataclass
class LoopReport:
    """Count the steps, chunks and tokens of an episode, and what went wrong."""

    steps: int = 0
    """Actions executed."""
    holds: int = 0
    """Steps at which the robot held still for want of an action."""
    late: int = 0
    """Steps that began after their time."""
    chunks: int = 0
    """Chunks that took over."""
    discarded: int = 0
    """Chunks that came too late to be executed."""
    undecodable: int = 0
    """Chunks whose tokens gave no actions, which only FAST knows."""
    tokens: int = 0
    """Tokens of the chunks that took over, or denoising steps."""


class UpcomingActions:
    """Hold the actions that are still to be executed, blended from the newest chunk and the one before it."""

    def __init__(self, blend: int) -> None:
        self._blend = blend
        self._first = 0
        self._actions = np.zeros((0, 1))
        self.start = 0
        """The step at which the newest chunk was asked for."""

    def add(self, start: int, actions: np.ndarray, now: int) -> None:
        """Let a chunk whose first action is that of step `start` take over from `now` on."""
        old = self._actions[now - self._first :]
        new = np.array(actions[now - start :])  # the actions before now are too late: they are dropped
        shared = min(len(old), len(new))
        # The old chunk fades out linearly: a jump from one chunk to the next would jerk the arm.
        weights = np.minimum(1, (np.arange(shared) + 1) / (self._blend + 1))[:, None]
        new[:shared] = (1 - weights) * old[:shared] + weights * new[:shared]
        self._first = now
        self._actions = new
        self.start = start

    def rest(self, step: int) -> np.ndarray | None:
        """Return the actions from a step on, or None where no chunk reaches that far."""
        left = self._actions[step - self._first :]
        return left if len(left) else None

    def at(self, step: int) -> np.ndarray | None:
        """Return the action of a step, or None where no chunk reaches that far."""
        place = step - self._first
        return self._actions[place] if place < len(self._actions) else None


@dataclass(frozen=True)
class _Request:
    """Remember a chunk that was asked for, and at which step and time."""

    step: int
    asked: float
    reply: "Future[Reply]"


class _Drive:
    """Drive a robot through one episode, and remember what it saw and did."""

    def __init__(self, robot: Robot, source: ChunkSource, task: str, config: LoopConfig) -> None:
        self.robot = robot
        self.source = source
        self.task = task
        self.config = config
        self.report = LoopReport()
        self.upcoming = UpcomingActions(config.blend)
        self.frames: deque[Mapping[str, np.ndarray]] = deque(maxlen=source.obs_horizon)
        self.seen: list[Mapping[str, np.ndarray]] = []
        self.executed: list[np.ndarray] = []
        self._request: _Request | None = None

    def run(self, finished: Callable[[], bool]) -> None:
        """Take one step after the other until the episode is finished, and hold still whatever happens."""
        due = time.perf_counter()
        with ThreadPoolExecutor(1) as thread:  # inference must not delay the next action
            try:
                while self.report.steps < self.config.max_steps and not finished():
                    due = self._wait_until(due)
                    self._step(thread)
            finally:
                self.robot.stop()

    def _wait_until(self, due: float) -> float:
        """Sleep until a step is due, and return when the next one is; time that was lost is not caught up."""
        now = time.perf_counter()
        if now < due:
            time.sleep(due - now)
        else:
            self.report.late += now - due > _TOLERANCE
            due = now  # catching up would mean acting faster than the policy was trained for
        return due + 1 / self.config.fps

    def _step(self, thread: ThreadPoolExecutor) -> None:
        """Observe, ask for a chunk if one is due, and execute an action, or hold still where there is none."""
        frame = self.robot.observe()
        self.frames.append(frame)
        self._take_reply()
        if self._request is None and self._is_due():
            self._ask(thread)
            if self.config.ahead == 0:  # the same actions as without a server, whatever the network does
                self._take_reply(wait=True)
        action = self.upcoming.at(self.report.steps)
        if action is None:
            self.report.holds += 1
            self.robot.stop()
            return
        action = self.config.limits.apply(action, self.executed[-1] if self.executed else None)
        self.robot.act(action)
        self.seen.append(frame)
        self.executed.append(action)
        self.report.steps += 1

    def _is_due(self) -> bool:
        """Return whether it is time to ask for the next chunk."""
        now = self.report.steps
        return self.upcoming.at(now) is None or now >= self.upcoming.start + self.config.execute - self.config.ahead

    def _ask(self, thread: ThreadPoolExecutor) -> None:
        """Ask for a chunk on the other thread; every request of an episode has a number of its own."""
        noise = (self.config.seed, self.report.chunks + self.report.discarded + self.report.undecodable)
        rest = self.upcoming.rest(self.report.steps)
        reply = thread.submit(self.source.infer, stack_history(self.frames), self.task, noise, rest)
        self._request = _Request(self.report.steps, time.perf_counter(), reply)

    def _take_reply(self, wait: bool = False) -> None:
        """Take over the chunk that was asked for, if it has arrived; an error of the client is raised here."""
        request = self._request
        if request is None or not (wait or request.reply.done()):
            return
        self._request = None
        now = self.report.steps
        try:
            chunk = request.reply.result()
        except UndecodableTokens:  # another draw may decode: it is asked for at the next step
            self.report.undecodable += 1
            return
        if time.perf_counter() - request.asked > self.config.max_age or now - request.step >= len(chunk.actions):
            self.report.discarded += 1
            return
        self.upcoming.add(request.step, chunk.actions, now)
        self.report.chunks += 1
        self.report.tokens += chunk.num_tokens


def drive(
    robot: Robot,
    source: ChunkSource,
    task: str,
    config: LoopConfig | None = None,
    finished: Callable[[], bool] = lambda: False,
    writer: LeRobotWriter | None = None,
) -> LoopReport:
    """Drive a robot for one episode, until `finished` says so or the steps are used up; then it holds still.

    While the connection is lost, and while tokens do not decode and others are asked for, the robot holds still, too;
    if the connection stays lost, the client's error is raised. What was seen and executed becomes an episode of the
    writer's in any case.
    """
    episode = _Drive(robot, source, task, config or LoopConfig())
    try:
        episode.run(finished)
    finally:  # an episode that an error or Ctrl-C ended is data, too
        if writer is not None and episode.executed:
            seen = {key: np.stack([frame[key] for frame in episode.seen]) for key in episode.seen[0]}
            writer.add_episode(task, np.stack(episode.executed), seen)
    return episode.report


_TOLERANCE = 1e-3  # seconds after its time at which a step counts as late
