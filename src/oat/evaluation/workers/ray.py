"""Simulators on a Ray cluster: every process is an actor, and its answers are futures."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oat.evaluation.workers.pool import ProcessDied
from oat.evaluation.workers.worker import Answer, MakeEnvironment, Message, WorkerGroup, make_environment
from oat.protocol import Protocol


class ActorLink:
    """Hold an actor of the cluster, and the answers that it owes."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self._actor = actor
        self.owed: deque[tuple[int, Any]] = deque()

    def post(self, slot: int, message: Message) -> None:
        self.owed.append((slot, self._actor.answer.remote(slot, message)))

    def fetch(self) -> tuple[int, Answer] | None:
        slot, future = self.owed[0]  # an actor answers in order: the oldest is the first to be ready
        if not self._ray.wait([future], timeout=0)[0]:
            return None
        self.owed.popleft()
        try:
            return slot, self._ray.get(future)
        except self._ray.exceptions.RayActorError as error:
            raise ProcessDied(f"the simulator's actor died ({error})") from error

    def close(self) -> None:
        self._ray.kill(self._actor)


@dataclass(frozen=True)
class RayActors:
    """Start simulators as actors of a Ray cluster, with one core each."""

    ray: Any
    protocol: Protocol
    make: MakeEnvironment = make_environment

    def open(self) -> ActorLink:
        return ActorLink(self.ray, self.ray.remote(num_cpus=1)(WorkerGroup).remote(self.protocol, self.make))

    def wait(self, links: Sequence[ActorLink]) -> None:
        self.ray.wait([link.owed[0][1] for link in links])
