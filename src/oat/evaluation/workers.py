"""Who runs episodes: a crew of workers, here as processes of this machine."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Protocol as Interface
from typing import TypeVar, runtime_checkable

from oat.evaluation.host import Answer, Crash, Host, MakeEnvironment, Message, make_environment
from oat.evaluation.protocol import Protocol

_PATIENCE = 1.0  # seconds for idle workers to leave by themselves


@runtime_checkable
class Worker(Interface):
    """A host somewhere else; every message is answered, one at a time."""

    def send(self, message: Message) -> None: ...

    def receive(self) -> Answer:
        """The answer, once it is there; a crash if the worker died."""
        ...


AnyWorker = TypeVar("AnyWorker", bound=Worker)


@runtime_checkable
class Crew(Interface[AnyWorker]):
    """Workers of one kind."""

    size: int

    def hire(self) -> AnyWorker: ...

    def wait(self, workers: Sequence[AnyWorker]) -> list[AnyWorker]:
        """Those that have answered, or died; at least one."""
        ...

    def dismiss(self, workers: Sequence[AnyWorker]) -> None:
        """End them, whatever they are doing."""
        ...


class LocalWorker:
    """A process, and the pipe to it."""

    def __init__(self, protocol: Protocol, make: MakeEnvironment) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, protocol, make), daemon=True)
        with _single_threaded():
            self.process.start()
        theirs.close()

    def send(self, message: Message) -> None:
        """A dead worker does not answer, which `receive` tells."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def receive(self) -> Answer:
        try:
            answer: Answer = self.connection.recv()
        except (EOFError, OSError):
            self.process.join(_PATIENCE)
            return Crash(f"the simulator's process died (exit code {self.process.exitcode})")
        return answer


class LocalCrew:
    """Processes of this machine."""

    def __init__(self, protocol: Protocol, size: int, make: MakeEnvironment = make_environment) -> None:
        self.size = size
        self._protocol, self._make = protocol, make

    def hire(self) -> LocalWorker:
        return LocalWorker(self._protocol, self._make)

    def wait(self, workers: Sequence[LocalWorker]) -> list[LocalWorker]:
        ready = multiprocessing.connection.wait([worker.connection for worker in workers])
        return [worker for worker in workers if worker.connection in ready]

    def dismiss(self, workers: Sequence[LocalWorker]) -> None:
        for worker in workers:
            worker.connection.close()  # who waits for a message sees that none will come
        deadline = time.monotonic() + _PATIENCE
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.join()


def _serve(connection: Connection, protocol: Protocol, make: MakeEnvironment) -> None:
    """A worker's life; it ends when nobody is at the other end of the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    host = Host(protocol, make)
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send(host.answer(connection.recv()))


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """Processes that are started now use one thread for numerics: simulators gain nothing from more."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
