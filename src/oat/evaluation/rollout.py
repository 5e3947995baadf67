"""Any policy in any simulator: receding horizon, batched over the workers that wait; no episode waits for another."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch

from oat.data.shuffle import derive_key
from oat.errors import OatError
from oat.evaluation.crew import Crew, Lost, Worker
from oat.evaluation.host import Act, Answer, Crash, Reset, Segment
from oat.evaluation.records import EpisodeKey, EpisodeRecord
from oat.interfaces import Observation
from oat.policies.decoding import Decoding, Noise
from oat.policies.policy import Policy

Finish = Callable[[EpisodeRecord, bytes | None], None]
"""Takes an episode's record when it ends, and its video if it was filmed."""


@dataclass(frozen=True)
class Episode:
    """An episode to run, and what is known of it beforehand."""

    key: EpisodeKey
    decoding: Decoding
    instruction: str
    """The task as the policy knows it."""
    evaluation_seed: int = 0
    data_source: str = ""
    versions: str = ""
    film: bool = False

    @property
    def seed(self) -> int:
        """Of the policy's sampling: methods that are compared draw alike."""
        return derive_key(self.key.task, self.key.condition, self.key.repeat)


@dataclass
class _Running:
    """An episode under way."""

    episode: Episode
    attempt: int = 0
    now: Segment | None = None
    executed: list[np.ndarray] = field(default_factory=list)
    chunks: int = 0
    tokens: int = 0
    failed: int = 0
    seconds: list[float] = field(default_factory=list)

    def advance(self, segment: Segment) -> None:
        self.now = segment
        if len(segment.executed):
            self.executed.append(segment.executed)

    def record(self, crash: Crash | None = None) -> EpisodeRecord:
        executed = np.concatenate(self.executed) if self.executed else np.zeros((0, 1), np.float32)
        thirds = np.diff(executed, n=3, axis=0)
        p50, p95 = (1e3 * float(np.quantile(self.seconds, q)) if self.seconds else None for q in (0.5, 0.95))
        return EpisodeRecord(
            key=self.episode.key,
            success=self.now is not None and self.now.success and crash is None,
            score=0.0 if self.now is None else self.now.score,
            best_score=0.0 if self.now is None else self.now.best_score,
            steps=len(executed),
            chunks=self.chunks,
            tokens=self.tokens,
            failed_decodes=self.failed,
            jerk=float(np.square(thirds).mean()) if thirds.size else None,
            inference_ms_p50=p50,
            inference_ms_p95=p95,
            data_source=self.episode.data_source,
            versions=self.episode.versions,
            evaluation_seed=self.episode.evaluation_seed,
            crashed=crash is not None,
            error="" if crash is None else crash.reason,
        )


class Rollout:
    """Episodes, and a crew that runs them.

    The policy always computes `batch` rows, so that an episode's actions do not depend on which others happen to run
    beside it, nor on the number of workers.
    """

    def __init__(self, policy: Policy, crew: Crew[Any], batch: int, finish: Finish) -> None:
        self._policy, self._crew, self._batch, self._finish = policy, crew, batch, finish
        self._waiting: deque[_Running] = deque()
        self._running: dict[Worker, _Running] = {}

    def run(self, episodes: Iterable[Episode]) -> None:
        """Run them all, in about this order."""
        self._waiting.extend(map(_Running, episodes))
        self._engage()
        while self._running:
            thinking = [worker for worker, answer in self._crew.wait() if self._hear(worker, answer)]
            self._engage()
            self._think(thinking)

    def _engage(self) -> None:
        """Begin one more episode in every process that has nothing to do, while others wait for the policy."""
        for worker in self._crew.workers:
            if worker not in self._running and self._crew.is_idle(worker.process):
                self._begin(worker)

    def _begin(self, worker: Worker) -> None:
        """Give a worker the next episode, if there is one."""
        if self._waiting:
            state = self._running[worker] = self._waiting.popleft()
            key = state.episode.key
            self._crew.send(worker, Reset(key.task, key.condition, state.episode.film))

    def _hear(self, worker: Worker, answer: Answer | Lost) -> bool:
        """Take a worker's answer; whether it now waits for a chunk."""
        if isinstance(answer, OatError):
            raise answer
        if isinstance(answer, Segment) and not answer.ended:
            self._running[worker].advance(answer)
            return True
        state = self._running.pop(worker)
        if isinstance(answer, Segment):
            state.advance(answer)
            self._finish(state.record(), answer.video)
        elif isinstance(answer, Lost):
            self._waiting.appendleft(_Running(state.episode, state.attempt))
        elif state.attempt == 0:
            self._waiting.appendleft(_Running(state.episode, attempt=1))
        else:
            self._finish(state.record(answer), None)
        self._begin(worker)
        return False

    def _think(self, workers: Sequence[Worker]) -> None:
        """Predict a chunk for every episode that waits, and let the workers go on."""
        for decoding, alike in groupby(workers, lambda worker: self._running[worker].episode.decoding):
            group = list(alike)
            for first in range(0, len(group), self._batch):
                self._predict(decoding, group[first : first + self._batch])

    @torch.inference_mode()
    def _predict(self, decoding: Decoding, workers: Sequence[Worker]) -> None:
        states = [self._running[worker] for worker in workers]
        begin = time.perf_counter()
        histories = [state.now.history for state in states if state.now is not None]
        values = {key: np.stack([history[key] for history in histories]) for key in histories[0]}
        observation = Observation(values, tuple(state.episode.instruction for state in states))
        noise = Noise.of([state.episode.seed for state in states], [state.chunks for state in states])
        chunk = self._policy.predict_chunk(observation, decoding, noise, pad_to=self._batch)
        actions, valid, tokens = chunk.actions.cpu().numpy(), chunk.valid.tolist(), chunk.steps.tolist()
        seconds = time.perf_counter() - begin
        for row, (worker, state) in enumerate(zip(workers, states, strict=True)):
            self._crew.send(worker, Act(actions[row] if valid[row] else None))
            state.chunks += 1
            state.tokens += tokens[row]
            state.failed += not valid[row]
            state.seconds.append(seconds)
