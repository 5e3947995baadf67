"""Workers, which run where the simulators are: each owns an environment and executes whole segments of actions.

Messages are few: a worker is told a chunk of actions, and tells what it saw when they are executed.
"""

import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from oat.errors import InvalidOption, OatError, SimulatorError
from oat.evaluation.videos import Film
from oat.interfaces import Environment, Filmable, Simulator, StoresStarts
from oat.protocol import Protocol
from oat.sims import find_simulator

MakeEnvironment = Callable[[Protocol, str], Environment]


def make_environment(protocol: Protocol, task: str, simulator: type[Simulator] | None = None) -> Environment:
    """Return an environment of a task, as the protocol has it.

    A worker's process knows our own simulators by name; of any other it must be given the class.
    """
    found = simulator or find_simulator(protocol.simulator)
    return found().make(task, protocol.cameras, protocol.image_size)


@dataclass(frozen=True)
class Reset:
    """Ask a worker to begin an episode."""

    task: str
    condition: int
    film: bool = False


@dataclass(frozen=True)
class Act:
    """Ask a worker to execute the first actions of a chunk, or to hold still for as many steps if there is none."""

    chunk: np.ndarray | None


@dataclass(frozen=True)
class Segment:
    """Tell where an episode is after a message."""

    history: Mapping[str, np.ndarray]
    """The last H_o frames of every key; at the start the first one repeated."""
    executed: np.ndarray
    """The actions that were executed."""
    success: bool
    score: float
    best_score: float
    ended: bool
    """Whether the episode ended, by success or by the protocol's time limit."""
    seconds: float
    """Seconds that executing the actions took."""
    video: bytes | None = None
    """The video of the whole episode, when it has ended and was filmed."""
    start: str = ""
    """The fingerprint of the stored start that the episode began at, if there is one."""


@dataclass(frozen=True)
class Crash:
    """Tell that the simulator failed; it is built anew for the next episode."""

    reason: str


Message = Reset | Act
Answer = Segment | Crash | OatError
"""An OatError is a mistake that another attempt would meet again."""


class EnvironmentWorker:
    """Own an environment and run one episode at a time in it."""

    def __init__(self, protocol: Protocol, make: MakeEnvironment) -> None:
        self.protocol = protocol
        self.make = make
        self.environments: dict[str, Environment] = {}
        """The current task's environment only: a large simulator's tasks do not fit into memory together."""
        self.frames: deque[Mapping[str, np.ndarray]] = deque(maxlen=protocol.obs_horizon)
        self.film: Film | None = None
        self.steps = 0
        self.score = 0.0
        self.best_score = 0.0

    def answer(self, message: Message) -> Answer:
        """Do what the message says, and return an answer whatever happens."""
        try:
            return self._reset(message) if isinstance(message, Reset) else self._act(message)
        except OatError as error:
            return error
        except Exception:
            # A simulator that failed may be in any state: the next episode gets a new one.
            self.environments.clear()
            return Crash(traceback.format_exc())

    def _reset(self, message: Reset) -> Segment:
        self.film = None
        if message.task not in self.environments:
            self.environments.clear()
            self.environments[message.task] = self._build(message.task)
        environment = self._environment
        self.steps = 0
        self.score = 0.0
        self.best_score = 0.0
        first = environment.reset(message.condition)
        self.frames.extend([first] * self.protocol.obs_horizon)
        if message.film:
            if not isinstance(environment, Filmable):
                raise InvalidOption(f"{self.protocol.simulator} cannot be filmed: leave out --videos")
            self.film = Film(environment)
        return self._segment([], False, seconds=0.0)

    def _build(self, task: str) -> Environment:
        try:
            return self.make(self.protocol, task)
        except OatError:
            raise
        except Exception as error:
            raise SimulatorError(f"cannot build {task!r} ({type(error).__name__}: {error})") from error

    @property
    def _environment(self) -> Environment:
        (environment,) = self.environments.values()
        return environment

    def _act(self, message: Act) -> Segment:
        environment = self._environment
        executed: list[np.ndarray] = []
        success = False
        limit = min(self.protocol.execute, self.protocol.max_steps - self.steps)
        begin = time.perf_counter()
        if self.film is not None:
            self.film.predict(message.chunk, limit)
        while len(executed) < limit and not success:
            if self.film is not None:
                self.film.expose()
            # A chunk that did not decode: `hold` gives the action that keeps this robot where it is.
            action = environment.hold() if message.chunk is None else message.chunk[len(executed)]
            # Only the last frames are shown to the policy, and rendering the others would be the larger part of a step.
            seen = len(executed) >= limit - self.protocol.obs_horizon
            outcome = environment.step(action, observe=seen)
            executed.append(action)
            if seen:
                self.frames.append(outcome.observation)
            success = outcome.success
            self.score = outcome.score
            self.best_score = max(self.best_score, self.score)
        self.steps += len(executed)
        return self._segment(executed, success, time.perf_counter() - begin)

    def _segment(self, executed: list[np.ndarray], success: bool, seconds: float) -> Segment:
        history = {key: np.stack([frame[key] for frame in self.frames]) for key in self.frames[0]}
        ended = success or self.steps >= self.protocol.max_steps
        video = None
        if ended and self.film is not None:
            self.film.expose(last=True)
            video = self.film.develop()
        taken = np.array(executed, np.float32)
        start = self._environment.start if isinstance(self._environment, StoresStarts) else ""
        return Segment(history, taken, success, self.score, self.best_score, ended, seconds, video, start)


class WorkerGroup:
    """Hold the workers of one process, one for each slot, and let one answer at a time."""

    def __init__(self, protocol: Protocol, make: MakeEnvironment) -> None:
        self._protocol = protocol
        self._make = make
        self._workers: dict[int, EnvironmentWorker] = {}

    def answer(self, slot: int, message: Message) -> Answer:
        """Return what the slot's worker answers; it is made when it is first needed."""
        if slot not in self._workers:
            self._workers[slot] = EnvironmentWorker(self._protocol, self._make)
        return self._workers[slot].answer(message)
