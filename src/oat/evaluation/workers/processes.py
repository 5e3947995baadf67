"""Simulators in processes of this machine, with a pipe to each of them."""

import contextlib
import multiprocessing
import multiprocessing.connection
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from oat.evaluation.workers.pool import ProcessDied
from oat.evaluation.workers.worker import Answer, MakeEnvironment, Message, WorkerGroup, make_environment
from oat.io.processes import interrupts_for_us_only, single_threaded, start_worker
from oat.protocol import Protocol

_PATIENCE = 1.0  # seconds that a process may take to end after its pipe has


class PipeLink:
    """Hold a process of this machine, and the pipe to it."""

    def __init__(self, protocol: Protocol, make: MakeEnvironment) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would carry over graphics contexts and threads
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, protocol, make), daemon=True)
        with (
            single_threaded(),
            interrupts_for_us_only(),
        ):  # there is a process for each core: threads of their own would only compete
            self._process.start()
        theirs.close()  # the process has the only other copy, so that the pipe ends when it does

    def post(self, slot: int, message: Message) -> None:
        with contextlib.suppress(OSError):  # dead: there will be no answer, which `fetch` tells
            self.connection.send((slot, message))

    def fetch(self) -> tuple[int, Answer] | None:
        try:
            found: tuple[int, Answer] | None = self.connection.recv() if self.connection.poll() else None
        except (EOFError, OSError) as error:
            self._process.join(_PATIENCE)
            raise ProcessDied(f"the simulator's process died (exit code {self._process.exitcode})") from error
        return found

    def close(self) -> None:
        self.connection.close()
        self._process.kill()  # it holds nothing that is not recorded elsewhere
        self._process.join()


@dataclass(frozen=True)
class LocalProcesses:
    """Start simulators in processes of this machine, with a pipe to each."""

    protocol: Protocol
    make: MakeEnvironment = make_environment

    def open(self) -> PipeLink:
        return PipeLink(self.protocol, self.make)

    def wait(self, links: Sequence[PipeLink]) -> None:
        multiprocessing.connection.wait([link.connection for link in links])


def _serve(connection: Connection, protocol: Protocol, make: MakeEnvironment) -> None:
    """Answer messages until nobody is at the other end of the pipe."""
    start_worker()
    workers = WorkerGroup(protocol, make)
    with contextlib.suppress(EOFError, OSError):
        while True:
            slot, message = connection.recv()
            connection.send((slot, workers.answer(slot, message)))
