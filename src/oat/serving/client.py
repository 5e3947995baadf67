"""A policy server's client: connect, send what the robot sees, get actions; reconnect when the connection is lost."""

import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from oat.errors import PolicyServerError, UndecodableTokens
from oat.io.extras import import_extra
from oat.serving.messages import NOISE, NUM_TOKENS, PROMPT, RESET, UNDECODABLE, pack, unpack

_FIRST_DELAY, _LONGEST_DELAY = 0.05, 2.0
_NOT_ALLOWED = (401, 403)


@dataclass(frozen=True)
class Reply:
    """A chunk from the server."""

    actions: np.ndarray
    """(time, dim), in action units."""
    num_tokens: int
    infer_ms: float
    """Of the computation."""
    total_ms: float
    """From sending to receiving."""


class PolicyClient:
    """One robot's connection; for one thread at a time.

    A lost connection is made again with growing pauses, for at most `patience` seconds. With `num_tokens`, every chunk
    is asked for from that many tokens; a server that does not let clients choose is refused.
    """

    def __init__(
        self,
        url: str = "ws://127.0.0.1:8000",
        api_key: str | None = None,
        timeout: float = 10.0,
        patience: float = 30.0,
        num_tokens: int | None = None,
    ) -> None:
        self.url, self._timeout, self._patience, self.num_tokens = url, timeout, patience, num_tokens
        self._headers = {} if api_key is None else {"Authorization": f"Api-Key {api_key}"}
        self._library = import_extra("websockets.sync.client", "serve")
        self._exceptions = import_extra("websockets.exceptions", "serve")
        self._connection: Any = None
        self._open = ExitStack()
        self.metadata: dict[str, Any] = {}
        """What the server says of its policy."""
        self._persevere(lambda: None)

    def infer(
        self, frames: Mapping[str, np.ndarray], task: str | None = None, noise: tuple[int, int] | None = None
    ) -> Reply:
        """Actions for an observation: for each key the last H_o frames, or the current one alone.

        With noise, an episode's seed and the number of the chunk, the same observation gives the same actions. Where
        the policy's tokens do not decode this time, `UndecodableTokens` is raised.
        """
        message: dict[str, Any] = dict(frames)
        message |= {} if task is None else {PROMPT: task}
        message |= {} if noise is None else {NOISE: list(noise)}
        message |= {} if self.num_tokens is None else {NUM_TOKENS: self.num_tokens}
        packed, begin = pack(message), time.perf_counter()
        answer = self._persevere(lambda: self._ask(packed))
        total = 1e3 * (time.perf_counter() - begin)
        used = answer.get("num_tokens", 0)
        if self.num_tokens is not None and not 0 < used <= self.num_tokens:
            raise PolicyServerError(f"{self.url} does not let clients choose {self.num_tokens} tokens")
        return Reply(answer["actions"], used, answer["server_timing"]["infer_ms"], total)

    def reset(self) -> None:
        """Begin a new episode of the server's random numbers."""
        packed = pack({RESET: True})
        self._persevere(lambda: self._ask(packed))

    @property
    def obs_horizon(self) -> int:
        """H_o: frames that the policy sees."""
        return int(self.metadata["obs_horizon"])

    def close(self) -> None:
        self._connection = None
        self._open.close()

    def _ask(self, packed: bytes) -> dict[str, Any]:
        self._connection.send(packed)
        answer = self._connection.recv(timeout=self._timeout)
        if isinstance(answer, str):
            self.close()
            if answer == UNDECODABLE:
                raise UndecodableTokens(f"{self.url}: {answer}")
            raise PolicyServerError(f"{self.url} refused the request: {answer}")
        return unpack(answer)

    def _persevere(self, ask: Callable[[], Any]) -> Any:
        """Do it on a connection that lives, making a new one as often as needed and allowed."""
        delay, end = _FIRST_DELAY, time.monotonic() + self._patience
        while True:
            try:
                if self._connection is None:
                    self._connect()
                return ask()
            except (OSError, TimeoutError, EOFError, self._exceptions.WebSocketException) as error:
                self._give_up_on(error, end)
                time.sleep(delay * random.uniform(0.5, 1))  # so that many robots do not all come back at once
                delay = min(2 * delay, _LONGEST_DELAY)

    def _connect(self) -> None:
        connecting = self._library.connect(
            self.url,
            compression=None,
            max_size=None,
            additional_headers=self._headers,
            open_timeout=self._timeout,
            close_timeout=1,
        )
        connection = self._open.enter_context(connecting)
        self.metadata = unpack(connection.recv(timeout=self._timeout))
        self._connection = connection

    def _give_up_on(self, error: Exception, end: float) -> None:
        """Forget the connection, and raise when another try is of no use or comes too late."""
        self.close()
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in _NOT_ALLOWED:
            raise PolicyServerError(f"{self.url} does not let us in: give it its API key") from error
        if isinstance(error, self._exceptions.InvalidURI):
            raise PolicyServerError(f"{self.url} is no address; one looks like ws://127.0.0.1:8000") from error
        if time.monotonic() >= end:
            raise PolicyServerError(f"{self.url} cannot be reached ({type(error).__name__}: {error})") from error

    def __enter__(self) -> "PolicyClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RemotePolicy:
    """Receding-horizon execution of a served policy: a queue of actions, filled again when it is empty."""

    def __init__(self, client: PolicyClient, task: str, execute: int = 16, seed: int = 0) -> None:
        self.client, self.task, self.execute = client, task, execute
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Begin an episode; its random numbers are the seed's."""
        self._seed, self._chunks = seed, 0
        self._queue: deque[np.ndarray] = deque()
        self._frames: deque[Mapping[str, np.ndarray]] = deque(maxlen=self.client.obs_horizon)

    def act(self, frame: Mapping[str, np.ndarray]) -> np.ndarray:
        """The action for what the robot sees now."""
        self._frames.append(frame)
        if not self._queue:
            reply = self.client.infer(stack_history(self._frames), self.task, (self._seed, self._chunks))
            self._chunks += 1
            self._queue.extend(reply.actions[: self.execute])
        return self._queue.popleft()


def stack_history(frames: deque[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The last H_o frames of every key; at an episode's start the first one repeated."""
    assert frames.maxlen is not None
    missing = frames.maxlen - len(frames)
    return {key: np.stack([frames[0][key]] * missing + [frame[key] for frame in frames]) for key in frames[0]}
