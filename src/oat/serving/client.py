"""Talk to a policy server: connect, send what the robot sees, get actions, reconnect when the connection is lost."""

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
from oat.serving.messages import NOISE, NUM_TOKENS, PREVIOUS, PROMPT, RESET, UNDECODABLE, pack, unpack

_FIRST_DELAY = 0.05  # seconds before the second attempt to connect; the pause doubles from then on
_LONGEST_DELAY = 2.0
_NOT_ALLOWED = (401, 403)  # HTTP statuses that another attempt would meet again


@dataclass(frozen=True)
class Reply:
    """Hold a chunk that a server computed, and how long that took."""

    actions: np.ndarray
    """(time, dim), in action units."""
    num_tokens: int
    """Tokens generated, or denoising steps taken."""
    infer_ms: float
    """Milliseconds that the server computed."""
    total_ms: float
    """Milliseconds from sending the request to receiving the reply."""


class PolicyClient:
    """Connect one robot to a policy server; one thread at a time may use it.

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
        self.url = url
        self.num_tokens = num_tokens
        self._timeout = timeout
        self._patience = patience
        self._headers = {} if api_key is None else {"Authorization": f"Api-Key {api_key}"}
        self._library = import_extra("websockets.sync.client", "serve")
        self._exceptions = import_extra("websockets.exceptions", "serve")
        self._connection: Any = None
        self._open = ExitStack()
        self.metadata: dict[str, Any] = {}
        """The map that describes the policy, which a server sends first."""
        self._persevere(lambda: None)

    def infer(
        self,
        frames: Mapping[str, np.ndarray],
        task: str | None = None,
        noise: tuple[int, int] | None = None,
        previous: np.ndarray | None = None,
    ) -> Reply:
        """Return actions for an observation: for each key the last H_o frames, or only the current one.

        With noise, an episode's seed and the number of the chunk, the same observation gives the same actions. What the
        robot would do from now on if no new chunk came lets a server choose one that goes on like that. Where the
        policy's tokens do not decode this time, `UndecodableTokens` is raised.
        """
        message: dict[str, Any] = dict(frames)
        message |= {} if task is None else {PROMPT: task}
        message |= {} if noise is None else {NOISE: list(noise)}
        message |= {} if previous is None or not len(previous) else {PREVIOUS: previous}
        message |= {} if self.num_tokens is None else {NUM_TOKENS: self.num_tokens}
        packed = pack(message)
        begin = time.perf_counter()
        answer = self._persevere(lambda: self._ask(packed))
        total = 1e3 * (time.perf_counter() - begin)
        used = answer.get("num_tokens", 0)
        if self.num_tokens is not None and not 0 < used <= self.num_tokens:
            raise PolicyServerError(f"{self.url} does not let clients choose {self.num_tokens} tokens")
        return Reply(answer["actions"], used, answer["server_timing"]["infer_ms"], total)

    def reset(self) -> None:
        """Tell the server to begin a new episode, with other random numbers."""
        packed = pack({RESET: True})
        self._persevere(lambda: self._ask(packed))

    @property
    def obs_horizon(self) -> int:
        """Return H_o, the number of frames that the policy sees."""
        return int(self.metadata["obs_horizon"])

    @property
    def decoding(self) -> str | None:
        """Return the name of the server's decoding, or None if the server does not tell."""
        name: str | None = self.metadata.get("decoding")
        return name

    @property
    def samples(self) -> int | None:
        """Return how many chunks the server draws for each that it sends, or None if it does not tell."""
        number: int | None = self.metadata.get("samples")
        return number

    def close(self) -> None:
        """Close the connection; the next request would make a new one."""
        self._connection = None
        self._open.close()

    def _ask(self, packed: bytes) -> dict[str, Any]:
        """Send a message over the open connection and return its answer; a text is a refusal."""
        self._connection.send(packed)
        answer = self._connection.recv(timeout=self._timeout)
        if isinstance(answer, str):
            self.close()
            if answer == UNDECODABLE:
                raise UndecodableTokens(f"{self.url}: {answer}")
            raise PolicyServerError(f"{self.url} refused the request: {answer}")
        return unpack(answer)

    def _persevere(self, ask: Callable[[], Any]) -> Any:
        """Return what `ask` returns on an open connection, connecting again as long as the patience lasts."""
        delay = _FIRST_DELAY
        end = time.monotonic() + self._patience
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
        """Open a connection and read the server's description of its policy."""
        connecting = self._library.connect(
            self.url,
            compression=None,  # images and floating-point numbers hardly shrink, and compressing takes time
            max_size=None,
            additional_headers=self._headers,
            open_timeout=self._timeout,
            close_timeout=1,
        )
        connection = self._open.enter_context(connecting)
        self.metadata = unpack(connection.recv(timeout=self._timeout))
        self._connection = connection

    def _give_up_on(self, error: Exception, end: float) -> None:
        """Close the connection, and raise when another attempt would be useless or too late."""
        self.close()
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in _NOT_ALLOWED:
            raise PolicyServerError(f"{self.url} does not let us in: give it its API key") from error
        if isinstance(error, self._exceptions.InvalidURI):
            raise PolicyServerError(f"{self.url} is not an address; one looks like ws://127.0.0.1:8000") from error
        if time.monotonic() >= end:
            raise PolicyServerError(f"{self.url} cannot be reached ({type(error).__name__}: {error})") from error

    def __enter__(self) -> "PolicyClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RemotePolicy:
    """Execute a served policy with a receding horizon: a queue of actions that is filled again when it is empty."""

    def __init__(self, client: PolicyClient, task: str, execute: int = 16, seed: int = 0) -> None:
        self.client = client
        self.task = task
        self.execute = execute
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Begin an episode, whose random numbers the seed determines."""
        self._seed = seed
        self._chunks = 0
        self._queue: deque[np.ndarray] = deque()
        self._rest: np.ndarray | None = None
        self._frames: deque[Mapping[str, np.ndarray]] = deque(maxlen=self.client.obs_horizon)

    def act(self, frame: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the action for the frame that the robot sees now."""
        self._frames.append(frame)
        if not self._queue:
            frames = stack_history(self._frames)
            reply = self.client.infer(frames, self.task, (self._seed, self._chunks), self._rest)
            self._chunks += 1
            self._queue.extend(reply.actions[: self.execute])
            self._rest = reply.actions[self.execute :]
        return self._queue.popleft()


def stack_history(frames: deque[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the last H_o frames of every key; at the start of an episode the first frame is repeated."""
    assert frames.maxlen is not None
    missing = frames.maxlen - len(frames)
    return {key: np.stack([frames[0][key]] * missing + [frame[key] for frame in frames]) for key in frames[0]}
