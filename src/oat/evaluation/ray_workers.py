"""The same workers on a Ray cluster: every host is an actor, and its answers are futures."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from oat.errors import InvalidOption, SimulatorError
from oat.evaluation.host import Answer, Crash, Host, MakeEnvironment, Message, make_environment
from oat.evaluation.protocol import Protocol
from oat.extras import import_extra


class RayWorker:
    """An actor, and the answer that it owes."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self.actor = ray, actor
        self.owed: Any = None

    def send(self, message: Message) -> None:
        self.owed = self.actor.answer.remote(message)

    def receive(self) -> Answer:
        try:
            answer: Answer = self._ray.get(self.owed)
        except self._ray.exceptions.RayActorError as error:
            return Crash(f"the simulator's actor died: {error}")
        return answer


class RayCrew:
    """Actors wherever the cluster has room."""

    def __init__(self, ray: Any, protocol: Protocol, size: int, share: float, make: MakeEnvironment) -> None:
        self.size = size
        self._ray, self._protocol, self._make = ray, protocol, make
        self._host = ray.remote(num_cpus=share)(Host)

    def hire(self) -> RayWorker:
        return RayWorker(self._ray, self._host.remote(self._protocol, self._make))

    def wait(self, workers: Sequence[RayWorker]) -> list[RayWorker]:
        owed = [worker.owed for worker in workers]
        self._ray.wait(owed)
        ready, _ = self._ray.wait(owed, num_returns=len(owed), timeout=0)  # others may have answered as well
        return [worker for worker in workers if worker.owed in ready]

    def dismiss(self, workers: Sequence[RayWorker]) -> None:
        for worker in workers:
            self._ray.kill(worker.actor)


@contextmanager
def open_ray_crew(
    protocol: Protocol,
    address: str | None,
    size: int | None,
    workers_per_core: int,
    make: MakeEnvironment = make_environment,
) -> Iterator[RayCrew]:
    """A crew on the cluster at the address, or on one that is started for it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone unasked
    ray = import_extra("ray", "ray")
    try:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise InvalidOption(f"no Ray cluster answers at {address} ({error}); `ray start --head` starts one") from error
    try:
        room = int(workers_per_core * ray.cluster_resources().get("CPU", 0))
        if size is not None and size > room:
            raise InvalidOption(f"the Ray cluster has room for {room} workers, got {size}")
        _check_version(ray)
        yield RayCrew(ray, protocol, size or room, 1 / workers_per_core, make)
    finally:
        ray.shutdown()


def _check_version(ray: Any) -> None:
    """Records say which oat made them, so the cluster must have this one."""
    here = version("oat")
    try:
        there = ray.get(ray.remote(version).remote("oat"))
    except ray.exceptions.RayError as error:
        raise SimulatorError(f"the Ray cluster does not have oat {here} ({type(error).__name__}: {error})") from error
    if there != here:
        raise SimulatorError(f"the Ray cluster has oat {there}, here is {here}: install the same version")
