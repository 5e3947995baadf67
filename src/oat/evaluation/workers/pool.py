"""Who runs episodes: workers, several to a process, so that a process is not idle while one waits for the policy.

Processes of this machine and actors of a Ray cluster differ only in how messages travel: in their `Transport`.
"""

from collections import deque
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar, runtime_checkable
from typing import Protocol as Interface

from oat.evaluation.workers.worker import Answer, Crash, Message


class ProcessDied(Exception):
    """The other end of a link is gone."""


@runtime_checkable
class Link(Interface):
    """The way to one process, which answers messages in the order in which they were sent."""

    def post(self, seat: int, message: Message) -> None: ...

    def fetch(self) -> tuple[int, Answer] | None:
        """The next answer and whose it is, if it is there; raises ProcessDied when there will be none."""
        ...

    def close(self) -> None:
        """End the process, whatever it is doing."""
        ...


AnyLink = TypeVar("AnyLink", bound=Link)


@runtime_checkable
class Transport(Interface[AnyLink]):
    """One kind of link."""

    def open(self) -> AnyLink:
        """Start a process."""
        ...

    def wait(self, links: Sequence[AnyLink]) -> None:
        """Until there is something to fetch from at least one."""
        ...


class Worker(NamedTuple):
    """A place for one episode at a time."""

    process: int
    seat: int


class Lost:
    """The process died while it was busy with another worker's message; what it held for this one is gone."""


class EnvironmentPool(Generic[AnyLink]):
    """Workers in processes, which are started when they are first needed and again when they have died."""

    def __init__(self, transport: Transport[AnyLink], processes: int, seats: int) -> None:
        self.processes = processes
        self.workers = [Worker(process, seat) for seat in range(seats) for process in range(processes)]
        self._transport = transport
        self._links: dict[int, AnyLink] = {}
        self._owed: list[deque[Worker]] = [deque() for _ in range(processes)]

    def send(self, worker: Worker, message: Message) -> None:
        """Give a worker something to do; it must have answered before."""
        if worker.process not in self._links:
            self._links[worker.process] = self._transport.open()
        self._owed[worker.process].append(worker)
        self._links[worker.process].post(worker.seat, message)

    def wait(self) -> list[tuple[Worker, Answer | Lost]]:
        """All answers that have come, at least one."""
        owing = {process: self._links[process] for process, owed in enumerate(self._owed) if owed}
        self._transport.wait(list(owing.values()))
        return [answer for process, link in owing.items() for answer in self._fetch(process, link)]

    def _fetch(self, process: int, link: AnyLink) -> list[tuple[Worker, Answer | Lost]]:
        answers: list[tuple[Worker, Answer | Lost]] = []
        owed = self._owed[process]
        try:
            while owed and (found := link.fetch()) is not None:
                worker, (seat, answer) = owed.popleft(), found
                assert worker.seat == seat
                answers.append((worker, answer))
        except ProcessDied as death:
            link.close()
            del self._links[process]
            busy = owed.popleft()
            owed.clear()
            answers.append((busy, Crash(str(death))))
            answers.extend((worker, Lost()) for worker in self.workers if worker.process == process and worker != busy)
        return answers

    def close(self) -> None:
        """End all processes."""
        for link in self._links.values():
            link.close()
