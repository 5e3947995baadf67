"""A pool of environments: several slots to a process, so that it is not idle while one of them waits for the policy.

Processes of this machine and actors of a Ray cluster differ only in how messages travel: in their `Transport`.
"""

from collections import deque
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar, runtime_checkable
from typing import Protocol as Interface

from oat.evaluation.workers.worker import Answer, Crash, Message


class ProcessDied(Exception):
    """Tell that the process at the other end of a link is gone."""


@runtime_checkable
class Link(Interface):
    """Carry messages to one process, which answers them in the order in which they were sent."""

    def post(self, slot: int, message: Message) -> None:
        """Send a message to one of the process's slots; a process that is dead is noticed by `fetch`."""
        ...

    def fetch(self) -> tuple[int, Answer] | None:
        """Return the next answer and its slot, or None if there is none yet; raise ProcessDied if none will come."""
        ...

    def close(self) -> None:
        """End the process, whatever it is doing."""
        ...


AnyLink = TypeVar("AnyLink", bound=Link)


@runtime_checkable
class Transport(Interface[AnyLink]):
    """Start processes in one kind of place, and wait for their answers."""

    def open(self) -> AnyLink:
        """Start a process, and return the link to it."""
        ...

    def wait(self, links: Sequence[AnyLink]) -> None:
        """Return as soon as there is something to fetch from at least one of the links."""
        ...


class Slot(NamedTuple):
    """Identify a place in which one episode at a time is run."""

    process: int
    number: int
    """Number of the slot among those of its process."""


class Lost:
    """Answer for a slot whose process died while it was busy with another slot's message: its episode is gone."""


class EnvironmentPool(Generic[AnyLink]):
    """Run episodes in processes, which are started when they are first needed and again when they have died."""

    def __init__(self, transport: Transport[AnyLink], processes: int, slots_per_process: int) -> None:
        self.processes = processes
        # The first slots of all processes come first: few episodes are spread over all processes.
        self.slots = [Slot(process, number) for number in range(slots_per_process) for process in range(processes)]
        self._transport = transport
        self._links: dict[int, AnyLink] = {}
        self._unanswered: list[deque[Slot]] = [deque() for _ in range(processes)]

    def send(self, slot: Slot, message: Message) -> None:
        """Send a message to a slot, which must have answered the one before."""
        if slot.process not in self._links:
            self._links[slot.process] = self._transport.open()
        self._unanswered[slot.process].append(slot)
        self._links[slot.process].post(slot.number, message)

    def wait(self) -> list[tuple[Slot, Answer | Lost]]:
        """Return all answers that have come, at least one."""
        busy = {process: self._links[process] for process, slots in enumerate(self._unanswered) if slots}
        self._transport.wait(list(busy.values()))
        return [answer for process, link in busy.items() for answer in self._fetch(process, link)]

    def _fetch(self, process: int, link: AnyLink) -> list[tuple[Slot, Answer | Lost]]:
        """Return a process's answers; if it died, a crash of the slot it was busy with, and the others as lost."""
        answers: list[tuple[Slot, Answer | Lost]] = []
        unanswered = self._unanswered[process]
        try:
            while unanswered and (found := link.fetch()) is not None:
                number, answer = found
                slot = unanswered.popleft()
                assert slot.number == number
                answers.append((slot, answer))
        except ProcessDied as death:
            link.close()
            del self._links[process]
            # Answers come in order, so that the process was busy with the oldest message when it died.
            crashed = unanswered.popleft()
            unanswered.clear()
            # What other slots answered just before is dropped: it would begin their next episodes, which the loss
            # that follows would begin a second time. Episodes are deterministic, so that nothing but time is lost.
            others = [slot for slot in self.slots if slot.process == process and slot != crashed]
            answers = [(crashed, Crash(str(death))), *((slot, Lost()) for slot in others)]
        return answers

    def close(self) -> None:
        """End all processes that were started, whatever they are doing."""
        for link in self._links.values():
            link.close()
