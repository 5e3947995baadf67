"""Serve a policy to robots on the network (`oat serve`), in the openpi protocol over WebSockets.

On connecting, a client gets a map that describes the policy. Every message with an observation is answered by one with
`actions`; `{"reset": True}` begins a new episode. A mistake is answered by a text that explains it; what is not a
message of the protocol at all also ends the connection. Beside that, HTTP: /healthz and /metrics.
"""

import asyncio
import contextlib
import hmac
import logging
import signal
import time
import traceback
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import numpy as np
from rich.console import Console

from oat.data.shuffle import derive_key
from oat.errors import InvalidOption, OatError
from oat.evaluation.decoding_rules import choose_decodings, executing
from oat.export.loading import load_predictor
from oat.io.extras import import_extra
from oat.policies.decoding import Decoding
from oat.policies.predictor import BasePredictor
from oat.serving.batching import Answer, InferenceThread
from oat.serving.config import ServeConfig
from oat.serving.messages import RESET, pack, unpack
from oat.serving.metrics import Metrics
from oat.serving.requests import check_names, describe_policy, read_request

_GOING_AWAY = 1001  # WebSocket close codes
_INTERNAL_ERROR = 1011
_PATIENCE = 10.0  # seconds that the requests in flight have when the server stops


@dataclass
class Episode:
    """Number the chunks of a client's episodes and remember the last, for clients that do not send these themselves."""

    seed: int
    number: int = 0
    chunks: int = 0
    _rest: np.ndarray | None = None
    _next: tuple[int, int] | None = None
    """The seed of the episode that the rest belongs to, and the number of the chunk that comes after it."""

    def reset(self) -> None:
        """Begin the next episode."""
        self.number += 1
        self.chunks = 0

    def next_noise(self) -> tuple[int, int]:
        """Return the seed of the episode and the number of its next chunk."""
        self.chunks += 1
        return derive_key(self.seed, self.number), self.chunks - 1

    def keep_rest(self, noise: tuple[int, int], rest: np.ndarray) -> None:
        """Remember what a chunk says to do after the actions that the client executes of it."""
        self._rest = rest
        self._next = (noise[0], noise[1] + 1)

    def take_rest(self, noise: tuple[int, int]) -> np.ndarray | None:
        """Return the rest of the chunk before this one, once; None for the first of an episode.

        One connection may serve several episodes by turns: a chunk of another one has nothing to do with this.
        """
        rest = self._rest if noise == self._next else None
        self._rest = None
        return rest


class PolicyServer:
    """Answer any number of robots; `start` it in an event loop, `stop` lets requests in flight finish."""

    def __init__(self, policy: BasePredictor, config: ServeConfig, decoding: Decoding | None = None) -> None:
        self.config = config
        self.policy = policy
        self.metrics = Metrics()
        self._key = config.read_key()
        self._greeting = pack(describe_policy(policy, decoding or policy.default_decoding, config.deadline_ms))
        self._inference = InferenceThread(policy, decoding, config.deadline_ms, config.max_batch, self.metrics)
        self._server: Any = None
        self._busy: set[Any] = set()
        """Connections with a request in flight."""
        self._clients = 0
        self._stopping = False
        self._websockets = import_extra("websockets.asyncio.server", "serve")
        self._closed = import_extra("websockets.exceptions", "serve").ConnectionClosed

    async def start(self) -> None:
        """Listen for clients; their messages are answered while the event loop runs."""
        quiet = logging.getLogger("oat.serving.server")
        quiet.setLevel(logging.CRITICAL)  # what hostile clients do is counted, not printed
        self._server = await self._websockets.serve(
            self._converse,
            self.config.host,
            self.config.port,
            process_request=self._http,
            compression=None,  # images and floating-point numbers hardly shrink, and compressing takes time
            max_size=self._largest_message(),
            max_queue=1,  # a client that sends ahead fills its own buffers, not ours
            ping_interval=self.config.client_timeout / 2,
            ping_timeout=self.config.client_timeout / 2,
            open_timeout=self.config.client_timeout,
            close_timeout=1,
            logger=quiet,
        )

    def _largest_message(self) -> int:
        """Return the bytes that a message may have.

        By default four times an observation, and some: enough for double precision and names, and little enough that
        many clients together cannot fill the memory.
        """
        if self.config.max_message_mb is not None:
            return int(self.config.max_message_mb * 2**20)
        observation = self.policy.random_observation(1)
        return 2**16 + 4 * sum(value.nbytes for value in observation.values.values())

    @property
    def port(self) -> int:
        """Return the port that the server listens at, also where the configuration says 0."""
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Take no more requests, finish those in flight, then close."""
        self._stopping = True
        self._server.close(close_connections=False)
        idle = [connection for connection in self._server.connections if connection not in self._busy]
        await asyncio.gather(*(connection.close(_GOING_AWAY, "the server stops") for connection in idle))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_closed(), _PATIENCE)
        await asyncio.to_thread(self._inference.close)

    def _http(self, connection: Any, request: Any) -> Any:
        """Answer a plain HTTP request, or refuse a client; return None to let a WebSocket client connect."""
        if request.path == "/healthz":  # before the key is asked for: load balancers have none
            return connection.respond(HTTPStatus.OK, "OK\n")
        keys = request.headers.get_all("Authorization")
        if len(keys) > 1:
            return connection.respond(HTTPStatus.BAD_REQUEST, "send one Authorization header\n")
        given = "".join(keys).encode()
        # The comparison takes equally long for all keys, so that its duration tells nothing about the right one.
        if self._key is not None and not hmac.compare_digest(given, b"Api-Key " + self._key):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "send the header Authorization: Api-Key KEY\n")
        if request.path == "/metrics":
            return connection.respond(HTTPStatus.OK, self.metrics.text())
        if self._stopping or self.metrics.connections >= self.config.max_clients:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "no more clients, try again later\n")
        return None

    async def _converse(self, connection: Any) -> None:
        """Answer one client from its connection to its end; an error ends this connection only."""
        self.metrics.connections += 1
        self._clients += 1
        episode = Episode(derive_key(self.config.seed, self._clients))
        try:
            await connection.send(self._greeting)
            await self._answer_all(connection, episode)
        except self._closed:
            pass  # it has left, or was too slow, too large or did not speak the protocol
        except OatError as error:
            self.metrics.requests["refused"] += 1
            await self._refuse(connection, str(error))
        except Exception as error:  # our own mistake, of which client and operator must hear
            self.metrics.requests["failed"] += 1
            traceback.print_exc()
            await self._refuse(connection, f"{type(error).__name__}: {error}")
        finally:
            self.metrics.connections -= 1

    async def _answer_all(self, connection: Any, episode: Episode) -> None:
        """Answer one message after the other until the client leaves or the server stops."""
        last_total: float | None = None
        while not self._stopping:
            message = await connection.recv()
            arrived = time.perf_counter()
            self._busy.add(connection)
            try:
                await connection.send(await self._reply_or_explain(unpack(message), episode, arrived, last_total))
            finally:
                self._busy.discard(connection)
            last_total = time.perf_counter() - arrived
        await connection.close(_GOING_AWAY, "the server stops")

    async def _reply_or_explain(
        self, given: dict[str, Any], episode: Episode, arrived: float, last_total: float | None
    ) -> bytes | str:
        """Return the answer, or a text that says what is wrong with the observation.

        The connection stays: openpi's client raises an error for a text, but would not connect again.
        """
        try:
            return await self._reply(given, episode, arrived, last_total)
        except OatError as error:
            self.metrics.requests["refused"] += 1
            return str(error)

    async def _reply(self, given: dict[str, Any], episode: Episode, arrived: float, last_total: float | None) -> bytes:
        """Return the packed answer to a request; `last_total` is what the client's previous one took."""
        if given.get(RESET) is True:
            episode.reset()
            return pack({RESET: True})
        request = read_request(given, self.policy, self.config.names)
        noise = request.noise or episode.next_noise()
        rest = episode.take_rest(noise)  # in any case: a chunk that does not decode leaves none
        if request.previous is None:
            request = replace(request, previous=rest)
        answer = await self._inference.infer(request, noise, arrived)
        if self.config.execute is not None:
            episode.keep_rest(noise, answer.actions[self.config.execute :])
        self._count(answer, time.perf_counter() - arrived)
        timing = {"infer_ms": 1e3 * answer.seconds}
        if last_total is not None:
            timing["prev_total_ms"] = 1e3 * last_total
        return pack({"actions": answer.actions, "num_tokens": answer.steps, "server_timing": timing})

    def _count(self, answer: Answer, seconds: float) -> None:
        """Count an answered request, and whether it missed the deadline."""
        late = self.config.deadline_ms is not None and 1e3 * seconds > self.config.deadline_ms
        self.metrics.answered(seconds, answer.steps, late)

    async def _refuse(self, connection: Any, explanation: str) -> None:
        """Send an explanation as text, as openpi's clients expect it, and close the connection."""
        with contextlib.suppress(self._closed):
            await connection.send(explanation)
            await connection.close(_INTERNAL_ERROR, "see the text before")


def serve_policy(config: ServeConfig) -> None:
    """Serve a policy until the process is told to stop (SIGTERM or Ctrl-C)."""
    policy, decoding = load_servable(config)
    asyncio.run(_serve(PolicyServer(policy, config, decoding)))


async def _serve(server: PolicyServer) -> None:
    """Start a server, print its address, and stop it after a signal."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    try:
        await server.start()
    except OSError as error:
        raise InvalidOption(f"cannot listen at {server.config.host}:{server.config.port}: {error.strerror}") from error
    Console().print(f"serving {server.config.policy} at ws://{server.config.host}:{server.port}", soft_wrap=True)
    await told.wait()
    await server.stop()


def load_servable(config: ServeConfig) -> tuple[BasePredictor, Decoding]:
    """Return the policy that a configuration names, and how it decodes."""
    policy = load_predictor(config.policy, config.threads, config.compiled)
    decoding = choose_decoding(config, policy)
    if config.deadline_ms is not None:
        policy.check_deadline(config.deadline_ms)
    check_names(config.names, policy)
    return policy, decoding


def choose_decoding(config: ServeConfig, policy: BasePredictor) -> Decoding:
    """Return how the policy decodes, refusing what means nothing to it."""
    stop = () if config.stop is None else (config.stop,)
    (decoding,) = choose_decodings(config, policy, (config.num_tokens,), stop, config.num_actions)
    return decoding if config.execute is None else executing(decoding, policy, config.execute)
