"""Simulators on a Ray cluster: every process is an actor, and its answers are futures."""

import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from oat.errors import InvalidOption, SimulatorError
from oat.evaluation.workers.pool import ProcessDied
from oat.evaluation.workers.worker import Answer, MakeEnvironment, Message, WorkerGroup, make_environment
from oat.io.extras import import_extra
from oat.protocol import Protocol

_PATIENCE = 5.0  # seconds in which a cluster must accept a connection


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


@contextmanager
def connect(address: str | None) -> Iterator[Any]:
    """Yield Ray, connected to the cluster at the address, or to one that is started for as long as it is needed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone unasked
    ray = import_extra("ray", "ray")
    try:
        _check_reachable(address or "")
        ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (OSError, ValueError) as error:
        raise InvalidOption(f"no Ray cluster answers at {address} ({error}); `ray start --head` starts one") from error
    try:
        _check_version(ray)
        yield ray
    finally:
        ray.shutdown()


def count_processes(ray: Any, asked: int | None) -> int:
    """Return how many processes to start: one for each core of the cluster, if not fewer are asked for."""
    cores = int(ray.cluster_resources().get("CPU", 0))
    if asked is not None and asked > cores:
        raise InvalidOption(f"the Ray cluster has {cores} cores, too few for {asked} workers")
    return asked or cores


def _check_reachable(address: str) -> None:
    """Raise OSError at once where nothing listens: Ray would try a wrong address for many minutes.

    Addresses without a port are names of Ray's own.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()


def _own_version() -> str:
    """Return the version of oat in whichever process this runs."""
    version: str = import_module("oat").__version__
    return version


def _check_version(ray: Any) -> None:
    """Raise SimulatorError where the cluster has another version: records say which one made them."""
    here = _own_version()
    try:
        there = ray.get(ray.remote(_own_version).remote())
    except ray.exceptions.RayError as error:
        raise SimulatorError(f"the Ray cluster does not have oat {here} ({type(error).__name__}: {error})") from error
    if there != here:
        raise SimulatorError(f"the Ray cluster has oat {there}, here is {here}: install the same version")
