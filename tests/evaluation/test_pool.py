"""A pool of environments gives every slot one answer at a time, also when a process dies with answers on the way."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from oat.evaluation.workers.pool import EnvironmentPool, Lost, ProcessDied, Slot
from oat.evaluation.workers.worker import Answer, Crash, Message, Reset, Segment

ENDED = Segment({"state": np.zeros((1, 1))}, np.zeros((0, 1), np.float32), True, 1.0, 1.0, True, 0.0)


class _Link:
    """Answers at once; the process dies when it comes to the second slot's message."""

    def __init__(self) -> None:
        self.sent: deque[int] = deque()

    def post(self, slot: int, message: Message) -> None:
        self.sent.append(slot)

    def fetch(self) -> tuple[int, Answer] | None:
        if not self.sent:
            return None
        slot = self.sent.popleft()
        if slot == 1:
            raise ProcessDied("killed")
        return slot, ENDED

    def close(self) -> None:
        pass


class _Transport:
    def open(self) -> _Link:
        return _Link()

    def wait(self, links: Sequence[_Link]) -> None:
        pass


def test_a_slot_is_told_once_of_the_death_of_its_process() -> None:
    """Had it also been given the answer that came just before, its next episode would have been begun twice."""
    pool = EnvironmentPool(_Transport(), processes=1, slots_per_process=2)
    for slot in pool.slots:
        pool.send(slot, Reset("reach", 0))
    told = pool.wait()
    assert sorted(slot for slot, _ in told) == [Slot(0, 0), Slot(0, 1)]
    answers = dict(told)
    assert isinstance(answers[Slot(0, 0)], Lost)
    assert isinstance(answers[Slot(0, 1)], Crash)
