"""Processes that own environments and execute whole segments of actions, so that messages are few."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from oat.errors import OatError, SimulatorError
from oat.evaluation.protocol import Protocol
from oat.interfaces import Environment

MakeEnvironment = Callable[[Protocol, str], Environment]


def make_environment(protocol: Protocol, task: str) -> Environment:
    from oat.sims import load_simulator

    return load_simulator(protocol.simulator).make(task, protocol.cameras, protocol.image_size)


@dataclass(frozen=True)
class Reset:
    """Begin an episode."""

    task: str
    condition: int


@dataclass(frozen=True)
class Act:
    """Execute these actions, or hold still for as many steps if they are None."""

    actions: np.ndarray | None
    steps: int


@dataclass(frozen=True)
class Segment:
    """Where an episode is after a message."""

    history: Mapping[str, np.ndarray]
    """The last H_o frames of every key; at the start the first one repeated."""
    executed: np.ndarray
    """The actions that were executed."""
    success: bool
    score: float
    best_score: float


class _Host:
    """One process's environments and its episode."""

    def __init__(self, protocol: Protocol, make: MakeEnvironment) -> None:
        self.protocol, self.make = protocol, make
        self.environments: dict[str, Environment] = {}
        self.frames: deque[Mapping[str, np.ndarray]] = deque(maxlen=protocol.obs_horizon)

    def handle(self, message: Reset | Act) -> Segment:
        return self._reset(message) if isinstance(message, Reset) else self._act(message)

    def _reset(self, message: Reset) -> Segment:
        if message.task not in self.environments:
            self.environments[message.task] = self.make(self.protocol, message.task)
        self.environment = self.environments[message.task]
        self.score = self.best_score = 0.0
        first = self.environment.reset(message.condition)
        self.frames.extend([first] * self.protocol.obs_horizon)
        return self._segment([], False)

    def _act(self, message: Act) -> Segment:
        executed: list[np.ndarray] = []
        success = False
        while len(executed) < message.steps and not success:
            action = self.environment.hold() if message.actions is None else message.actions[len(executed)]
            outcome = self.environment.step(action)
            executed.append(action)
            self.frames.append(outcome.observation)
            success, self.score = outcome.success, outcome.score
            self.best_score = max(self.best_score, self.score)
        return self._segment(executed, success)

    def _segment(self, executed: list[np.ndarray], success: bool) -> Segment:
        history = {key: np.stack([frame[key] for frame in self.frames]) for key in self.frames[0]}
        return Segment(history, np.array(executed, np.float32), success, self.score, self.best_score)


def _serve(connection: Connection, protocol: Protocol, make: MakeEnvironment) -> None:
    """A worker's life: answer every message with a segment, or with the error that it met."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    host = _Host(protocol, make)
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        try:
            connection.send(host.handle(message))
        except OatError as error:
            connection.send(error)
        except Exception:
            connection.send(SimulatorError(traceback.format_exc()))


class Worker:
    """A process with environments, as the parent sees it."""

    def __init__(self, protocol: Protocol, make: MakeEnvironment = make_environment) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, protocol, make), daemon=True)
        threads = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = "1"  # inherited; simulators gain nothing from more
        try:
            self._process.start()
        finally:
            if threads is None:
                del os.environ["OMP_NUM_THREADS"]
            else:
                os.environ["OMP_NUM_THREADS"] = threads
        theirs.close()

    def send(self, message: Reset | Act) -> None:
        """A dead worker does not answer, which `receive` tells."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def receive(self) -> Segment | SimulatorError:
        """The answer; an error if the process died or the simulator failed."""
        try:
            answer: Any = self.connection.recv()
        except (EOFError, OSError):
            return SimulatorError(f"the simulator's process died (exit code {self._process.exitcode})")
        if isinstance(answer, OatError) and not isinstance(answer, SimulatorError):
            raise answer  # a user's mistake, not a crash
        assert isinstance(answer, Segment | SimulatorError)
        return answer

    def close(self) -> None:
        self.connection.close()
        self._process.join(timeout=2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def wait_for_any(workers: list[Worker]) -> list[Worker]:
    """Those that have answered, or died; at least one."""
    ready = multiprocessing.connection.wait([worker.connection for worker in workers])
    return [worker for worker in workers if worker.connection in ready]
