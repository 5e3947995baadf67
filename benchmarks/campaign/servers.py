"""Hostile frames, hostile connections and long use of a policy server, with PyTorch and with an export."""

import socket
import time
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from websockets.sync.client import connect

from benchmarks.campaign.children import call
from benchmarks.campaign.trial import Broken, Place
from benchmarks.campaign.workshop import item
from benchmarks.hostile import KEY, hostile_messages
from oat.export.loading import load_predictor
from oat.serving.background import serving
from oat.serving.client import PolicyClient
from oat.serving.config import ServeConfig
from oat.serving.messages import pack
from oat.serving.server import PolicyServer
from tests.policies.small import STATE_DIM

FRAMES = 400
CONNECTIONS = 100
CALLS = 1_000
_GOOD_EVERY = 40
_SECONDS = 240.0
_PATIENCE = 10.0
_GROWTH_MB = 24.0  # what allocators may keep


def send_frames(name: str, generator: np.random.Generator, place: Place) -> int:
    """Send frames that are no requests, and damaged requests, while a good client is answered as always."""
    return _with_server(name, place, partial(_frames, seed=int(generator.integers(2**31))), FRAMES)


def connect_badly(name: str, generator: np.random.Generator, place: Place) -> int:
    """Send what is no HTTP, leave in the middle, or say nothing."""
    return _with_server(name, place, partial(_connections, seed=int(generator.integers(2**31))), CONNECTIONS)


def soak(name: str, generator: np.random.Generator, place: Place) -> int:
    """Ask for many chunks over connections that come and go: equal answers, and memory that does not grow."""
    return _with_server(name, place, partial(_soak, seed=int(generator.integers(2**31))), CALLS)


def _with_server(name: str, place: Place, attack: Any, attempts: int) -> int:
    sort, _, kind = name.partition("-")
    path = item(place, f"policy-{kind}") / "checkpoint" if sort == "eager" else item(place, f"export-{kind}") / "export"
    ended = call(partial(_serve, path, attack), _SECONDS).check()
    if ended.answer is not None:
        raise Broken(str(ended.answer))
    return attempts


def _serve(path: Path, attack: Any) -> str | None:
    """Return what an attack on a server found, and whether the server itself failed."""
    config = ServeConfig(policy=path, port=0, max_batch=2, client_timeout=5)
    with serving(load_predictor(path), config) as server:
        found: str | None = attack(server)
        failed = server.metrics.requests["failed"]
    return found or (f"{failed} requests failed inside the server" if failed else None)


def _good(server: PolicyServer, client: PolicyClient | None = None) -> bytes:
    """Return the chunk that a well-behaved client gets for an observation and noise that never change."""
    frames = {KEY: np.linspace(-1, 1, STATE_DIM).astype(np.float32)}
    if client is not None:
        return client.infer(frames, "push", (7, 0)).actions.tobytes()
    with PolicyClient(_url(server), timeout=_PATIENCE) as one:
        return _good(server, one)


def _url(server: PolicyServer) -> str:
    return f"ws://127.0.0.1:{server.port}"


def _frames(server: PolicyServer, seed: int) -> str | None:
    generator = np.random.default_rng(seed)
    expected = _good(server)
    bad = hostile_messages((STATE_DIM,), seed)
    with PolicyClient(_url(server), timeout=_PATIENCE) as client:
        for number, message in enumerate(islice(bad, FRAMES // 2)):
            if not _refused(_url(server), message):
                return f"message {number} of hostile_messages(seed={seed}) was not refused: {message!r:.80}"
            _answered(_url(server), _damaged(generator))
            if number % _GOOD_EVERY == 0 and _good(server, client) != expected:
                return "a good client's chunk is another one"
    return None


def _damaged(generator: np.random.Generator) -> bytes:
    """Return a request with a few bytes changed, which may still be one."""
    request = bytearray(pack({KEY: generator.normal(size=STATE_DIM).astype(np.float32), "prompt": "push"}))
    for _ in range(int(generator.integers(1, 6))):
        request[int(generator.integers(len(request)))] = int(generator.integers(256))
    return bytes(request)


def _answered(url: str, message: bytes | str) -> bytes | str:
    """Return the answer to a message; a server that is silent for long raises TimeoutError."""
    with connect(url, compression=None) as connection:
        connection.recv(timeout=_PATIENCE)
        connection.send(message)
        return connection.recv(timeout=_PATIENCE)


def _refused(url: str, message: bytes | str) -> bool:
    return isinstance(_answered(url, message), str)


def _connections(server: PolicyServer, seed: int) -> str | None:
    generator = np.random.default_rng(seed)
    expected = _good(server)
    for number in range(CONNECTIONS):
        with socket.create_connection(("127.0.0.1", server.port), _PATIENCE) as raw, suppress(OSError):
            raw.sendall(_greeting(generator))
            if generator.random() < 0.5:
                raw.settimeout(0.05)
                raw.recv(1000)
        if number % _GOOD_EVERY == 0 and _good(server) != expected:
            return "a good client's chunk is another one"
    deadline = time.monotonic() + _PATIENCE + 5
    while server.metrics.connections:
        if time.monotonic() > deadline:
            return f"{server.metrics.connections} connections are still counted"
        time.sleep(0.05)
    return None if _good(server) == expected else "a good client's chunk is another one"


def _greeting(generator: np.random.Generator) -> bytes:
    """Return the beginning of a connection that nobody should make."""
    upgrade = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    keyed = upgrade + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    choices = [
        b"",
        generator.bytes(int(generator.integers(1, 3000))),
        b"GET " + b"/" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5_000 + b"\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n",
        b"GET /%00../etc HTTP/9.9\r\n\r\n",
        upgrade + b"\r\n",
        keyed,
        keyed + generator.bytes(200),
        keyed + b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff",  # a frame of 2**63 bytes, it says
        keyed + b"\x89\xfe\x10\x00" + bytes(5_000),  # a ping that is too long
        keyed + b"\xff\x80\x00\x00\x00\x00",
    ]
    return choices[int(generator.integers(len(choices)))]


def _soak(server: PolicyServer, seed: int) -> str | None:
    generator = np.random.default_rng(seed)
    expected = _good(server)
    start = 0.0
    client = PolicyClient(_url(server), timeout=_PATIENCE)
    for number in range(CALLS):
        if number == CALLS // 5:
            start = _resident_mb()
        choice = generator.random()
        if choice < 0.02:
            client.close()
            client = PolicyClient(_url(server), timeout=_PATIENCE)
        elif choice < 0.05:
            client.reset()
        if _good(server, client) != expected:
            return f"call {number} gave another chunk"
    client.close()
    grown = _resident_mb() - start
    return f"memory grew by {grown:.0f} MB in {CALLS} calls" if grown > _GROWTH_MB else None


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
