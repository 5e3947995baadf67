"""Simulators in this very process, where what they do is to be watched, or where they are too fast to need others."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from oat.evaluation.workers.worker import Answer, MakeEnvironment, Message, WorkerGroup
from oat.protocol import Protocol


class DirectLink:
    """Let workers of this process answer as soon as they are told something."""

    def __init__(self, protocol: Protocol, make: MakeEnvironment) -> None:
        self._workers = WorkerGroup(protocol, make)
        self._answers: deque[tuple[int, Answer]] = deque()

    def post(self, slot: int, message: Message) -> None:
        self._answers.append((slot, self._workers.answer(slot, message)))

    def fetch(self) -> tuple[int, Answer] | None:
        return self._answers.popleft() if self._answers else None

    def close(self) -> None:
        """Leave everything as it is: there is no process to end."""


@dataclass(frozen=True)
class DirectTransport:
    """Run simulators in this process."""

    protocol: Protocol
    make: MakeEnvironment

    def open(self) -> DirectLink:
        return DirectLink(self.protocol, self.make)

    def wait(self, links: Sequence[DirectLink]) -> None:
        """Return at once: whatever was posted has been answered."""
