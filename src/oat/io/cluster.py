"""Ray clusters: connect to one, and see that it can be used."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from oat.errors import InvalidOption, WorkersFailed
from oat.io.extras import import_extra

_PATIENCE = 5.0  # seconds in which a cluster must accept a connection


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
    """Raise WorkersFailed where the cluster has another version: what it makes would not be what is made here."""
    here = _own_version()
    try:
        there = ray.get(ray.remote(_own_version).remote())
    except ray.exceptions.RayError as error:
        raise WorkersFailed(f"the Ray cluster does not have oat {here} ({type(error).__name__}: {error})") from error
    if there != here:
        raise WorkersFailed(f"the Ray cluster has oat {there}, here is {here}: install the same version")
