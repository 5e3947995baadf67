"""Let policies of ours act in praxis-eval, the evaluation package of the paper's authors (PyPI praxis-eval 0.1.3).

It asks for one action at a time for several episodes together; histories of frames and queues of actions are kept here,
by episode. Nothing of praxis-eval is imported: it knows policies by their methods `act` and `reset`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32

from oat.data.shuffle import derive_key
from oat.errors import InvalidObservation, UndecodableTokens
from oat.interfaces import Observation
from oat.policies.choosing import Previous
from oat.policies.decoding import Decoding
from oat.policies.pixels import to_pixels
from oat.policies.predictor import BasePredictor
from oat.policies.sampling import Noise
from oat.serving.client import PolicyClient

TASK = "task"
Rests = Sequence[np.ndarray | None]


@dataclass(frozen=True)
class Seen:
    """Tell what a policy sees: how many frames, one frame's shape of every key, and the tasks it knows."""

    obs_horizon: int
    sizes: Mapping[str, tuple[int, ...]]
    tasks: tuple[str, ...]

    @property
    def cameras(self) -> list[str]:
        """Return the keys of images, which have a height, a width and three channels."""
        return [key for key, size in self.sizes.items() if len(size) == 3]


@runtime_checkable
class ChunkSource(Protocol):
    """Predict chunks somewhere: in this process, or on a server."""

    @property
    def seen(self) -> Seen:
        """Return what the policy sees."""
        ...

    def chunks(
        self, observation: Observation, noise: Sequence[tuple[int, int]], rests: Rests
    ) -> Float[np.ndarray, "batch time action"]:
        """Return a chunk for every row, given the seed of its episode, the number of its chunk and the last one's rest.

        The rest is what the row would do from now on if no new chunk came; None at the beginning of an episode.
        """
        ...


class LocalChunks:
    """Predict chunks in this process, by a policy or what `oat export` made of it."""

    def __init__(self, predictor: BasePredictor, decoding: Decoding | None = None) -> None:
        self._predictor = predictor
        self._decoding = decoding
        context = predictor.observed
        self.seen = Seen(context.obs_horizon, {**predictor.reference, **context.sizes()}, context.tasks)

    def chunks(
        self, observation: Observation, noise: Sequence[tuple[int, int]], rests: Rests
    ) -> Float[np.ndarray, "batch time action"]:
        """Return a chunk for every row; raise `UndecodableTokens` where one has none."""
        seeds, numbers = zip(*noise, strict=True)
        previous = Previous.of(rests, self._predictor.space.action_dim)
        drawn = Noise.of(seeds, numbers)
        chunk = self._predictor.predict_chunk(observation, self._decoding, drawn, previous=previous)
        if not bool(chunk.valid.all()):
            raise UndecodableTokens("the policy's tokens do not decode, and praxis-eval has no action that means so")
        actions: np.ndarray = chunk.actions.cpu().numpy()
        return actions


class ServerChunks:
    """Ask a server of `oat serve` for chunks, one row after the other."""

    def __init__(self, client: PolicyClient) -> None:
        self._client = client
        described = client.metadata
        sizes = {key: tuple(each["shape"]) for key, each in described["observations"].items()}
        self.seen = Seen(client.obs_horizon, sizes, tuple(described["tasks"]))

    def chunks(
        self, observation: Observation, noise: Sequence[tuple[int, int]], rests: Rests
    ) -> Float[np.ndarray, "batch time action"]:
        """Return a chunk for every row."""
        rows = []
        for row, (task, drawn, rest) in enumerate(zip(observation.tasks, noise, rests, strict=True)):
            frames = {key: values[row] for key, values in observation.values.items()}
            rows.append(self._client.infer(frames, task, drawn, rest).actions)
        return np.stack(rows)


@dataclass
class _Episode:
    """Hold the frames that an episode has shown lately, and the actions that it is still owed."""

    seed: int
    frames: deque[dict[str, np.ndarray]]
    queue: deque[np.ndarray] = field(default_factory=deque)
    chunks: int = 0
    rest: np.ndarray | None = None
    """What the last chunk says to do after the actions that are executed of it."""

    def show(self, frame: dict[str, np.ndarray]) -> None:
        """Take the current frame; at the beginning it stands for those before it."""
        missing = 1 if self.frames else self.frames.maxlen or 1
        self.frames.extend([frame] * missing)


class PraxisPolicy:
    """Act for praxis-eval: `execute` actions of a chunk, then the next chunk, for every episode on its own.

    `names` maps what praxis-eval calls some observations to the policy's names; a single camera needs no mapping.
    Actions are clipped to the range that praxis-eval asks for.
    """

    def __init__(
        self, source: ChunkSource, execute: int = 16, seed: int = 0, names: Mapping[str, str] | None = None
    ) -> None:
        self._source = source
        self._execute = execute
        self._seed = seed
        self._names = dict(names or {})
        self._episodes: dict[str, _Episode] = {}
        self._begun = 0

    def reset(self, episode_ids: Sequence[str] | None = None) -> None:
        """Forget these episodes, or all of them: they begin anew, with other random numbers."""
        for name in list(self._episodes) if episode_ids is None else episode_ids:
            self._episodes.pop(name, None)

    def act(
        self,
        observations: Sequence[Mapping[str, Any]],
        *,
        action_spec: Any = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        episode_ids: Sequence[str] | None = None,
    ) -> Float32[np.ndarray, "batch action"]:
        """Return one action for every observation; without ids, a row's place tells its episode."""
        names = episode_ids or [f"row {row}" for row in range(len(observations))]
        episodes = [self._find(name) for name in names]
        for episode, observation in zip(episodes, observations, strict=True):
            episode.show(self._frame(observation))
        waiting = [row for row, episode in enumerate(episodes) if not episode.queue]
        if waiting:
            self._refill([episodes[row] for row in waiting], [self._task(observations[row]) for row in waiting])
        actions = np.stack([episode.queue.popleft() for episode in episodes]).astype(np.float32)
        low, high = (getattr(action_spec, name, None) for name in ("minimum", "maximum"))
        return actions if low is None and high is None else np.clip(actions, low, high)

    def _find(self, name: str) -> _Episode:
        if name not in self._episodes:
            seed = derive_key(self._seed, name, self._begun)
            self._begun += 1
            self._episodes[name] = _Episode(seed, deque(maxlen=self._source.seen.obs_horizon))
        return self._episodes[name]

    def _refill(self, episodes: Sequence[_Episode], tasks: Sequence[str]) -> None:
        """Predict the next chunks of these episodes in one call."""
        histories = [{key: np.stack([f[key] for f in e.frames]) for key in e.frames[-1]} for e in episodes]
        values = {key: np.stack([history[key] for history in histories]) for key in histories[0]}
        noise = [(episode.seed, episode.chunks) for episode in episodes]
        rests = [episode.rest for episode in episodes]
        chunks = self._source.chunks(Observation(values, tuple(tasks)), noise, rests)
        for episode, chunk in zip(episodes, chunks, strict=True):
            episode.chunks += 1
            episode.queue.extend(chunk[: self._execute])
            episode.rest = chunk[self._execute :]

    def _frame(self, observation: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return what the policy sees of an observation, under its own names."""
        seen = self._source.seen
        given = {self._names.get(key, key): value for key, value in observation.items()}
        # praxis-eval calls MetaWorld's camera observation.images.corner2, LeRobot's data sets observation.image.
        images = [key for key, value in given.items() if getattr(value, "ndim", 0) == 3]
        if len(images) == len(seen.cameras) == 1:
            given[seen.cameras[0]] = given[images[0]]
        missing = [key for key in seen.sizes if key not in given]
        if missing:
            raise InvalidObservation(f"the observation lacks {', '.join(missing)}; it has {', '.join(observation)}")
        return {key: _as_seen(given[key], size) for key, size in seen.sizes.items()}

    def _task(self, observation: Mapping[str, Any]) -> str:
        tasks = self._source.seen.tasks
        return tasks[0] if len(tasks) == 1 else str(observation[TASK])


def _as_seen(value: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Return one frame of a key: a float32 vector, or a uint8 image with channels last."""
    if len(size) != 3:
        return np.asarray(value, np.float32)
    pixels: np.ndarray = to_pixels(torch.from_numpy(np.ascontiguousarray(value)), (size[0], size[1])).numpy()
    return pixels
