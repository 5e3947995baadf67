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
from oat.evaluation.batch_size import BatchSizer
from oat.evaluation.records import EpisodeKey, EpisodeRecord
from oat.evaluation.workers.pool import EnvironmentPool, Lost, Worker
from oat.evaluation.workers.worker import Act, Answer, Crash, Reset, Segment
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
    demonstrator: str = ""
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
            demonstrator=self.episode.demonstrator,
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

    def __init__(self, policy: Policy, crew: EnvironmentPool[Any], batch: int, finish: Finish) -> None:
        self._policy, self._crew, self._batch, self._finish = policy, crew, batch, finish
        self._pace = BatchSizer(batch, crew.processes)
        self._planned: deque[_Running] = deque()
        self._running: dict[Worker, _Running] = {}
        self._waiting: list[Worker] = []
        """Those of the running that need a chunk."""

    def run(self, episodes: Iterable[Episode]) -> None:
        """Run them all, in about this order."""
        self._planned.extend(map(_Running, episodes))
        self._engage()
        while self._running:
            if len(self._waiting) < len(self._running):
                for worker, answer in self._crew.wait():
                    self._hear(worker, answer)
            self._engage()
            if self._pace.should_predict(len(self._waiting), len(self._running)):
                self._think()

    def _engage(self) -> None:
        """Begin as many episodes as should run side by side."""
        for worker in self._crew.workers[: self._pace.episodes]:
            if worker not in self._running:
                self._begin(worker)

    def _begin(self, worker: Worker) -> None:
        """Give a worker the next episode, if there is one."""
        if self._planned:
            state = self._running[worker] = self._planned.popleft()
            key = state.episode.key
            self._crew.send(worker, Reset(key.task, key.condition, state.episode.film))

    def _hear(self, worker: Worker, answer: Answer | Lost) -> None:
        """Take a worker's answer: it now waits for a chunk, or its episode is over, or to be begun again."""
        if isinstance(answer, OatError):
            raise answer
        if isinstance(answer, Lost):
            self._lose(worker)
            return
        if isinstance(answer, Segment) and not answer.ended:
            self._running[worker].advance(answer)
            if answer.seconds:
                self._pace.saw_segment(answer.seconds)
            self._waiting.append(worker)
            return
        state = self._running.pop(worker)
        if isinstance(answer, Segment):
            state.advance(answer)
            self._finish(state.record(), answer.video)
        elif state.attempt == 0:
            self._planned.appendleft(_Running(state.episode, attempt=1))
        else:
            self._finish(state.record(answer), None)
        self._begin(worker)

    def _lose(self, worker: Worker) -> None:
        """Begin its episode again, if it has one, even if all that it did was to wait for a chunk."""
        if worker in self._running:
            state = self._running.pop(worker)
            self._waiting = [each for each in self._waiting if each != worker]
            self._planned.appendleft(_Running(state.episode, state.attempt))
            self._begin(worker)

    def _think(self) -> None:
        """Predict a chunk for every episode that waits, and let the workers go on."""
        workers, self._waiting = self._waiting, []
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
        self._pace.saw_prediction(seconds)
        for row, (worker, state) in enumerate(zip(workers, states, strict=True)):
            self._crew.send(worker, Act(actions[row] if valid[row] else None))
            state.chunks += 1
            state.tokens += tokens[row]
            state.failed += not valid[row]
            state.seconds.append(seconds)
