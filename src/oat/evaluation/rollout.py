"""Run any policy in any simulator: receding horizon, in batches of episodes that wait for a chunk.

No episode waits for another one to end.
"""

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
from oat.evaluation.workers.pool import EnvironmentPool, Lost, Slot
from oat.evaluation.workers.worker import Act, Answer, Crash, Reset, Segment
from oat.interfaces import Observation
from oat.policies.choosing import Previous
from oat.policies.decoding import Decoding, SampledDecoding
from oat.policies.policy import Policy
from oat.policies.sampling import Noise
from oat.protocol import Protocol

Finish = Callable[[EpisodeRecord, bytes | None], None]
"""Takes an episode's record when it ends, and its video if it was filmed."""


@dataclass(frozen=True)
class Episode:
    """Describe an episode to run, and what is known of it beforehand."""

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
        """Return the seed of the policy's sampling: methods that are compared draw alike."""
        # Neither method nor checkpoint is part of it, so that chance favours none of them.
        return derive_key(self.key.task, self.key.condition, self.key.repeat)


@dataclass
class _Running:
    """Hold the state of an episode that has begun."""

    episode: Episode
    attempt: int = 0
    now: Segment | None = None
    executed: list[np.ndarray] = field(default_factory=list)
    chunks: int = 0
    tokens: int = 0
    failed: int = 0
    seconds: list[float] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    """Tokens of each chunk."""
    rest: np.ndarray | None = None
    """What the last chunk says to do after the actions that are executed of it; None if it did not decode."""
    jumps: list[float] = field(default_factory=list)

    def splice(self, chunk: np.ndarray, protocol: Protocol) -> np.ndarray:
        """Return what is executed from here: while the chunk is computed, the rest of the one before."""
        committed = chunk[:0] if self.rest is None else self.rest[: protocol.delay]
        late = len(committed)
        before = [*self.executed[-1:], committed]
        acted = np.concatenate(before) if self.executed else committed
        if len(acted):
            self.jumps.append(float(np.linalg.norm(chunk[late] - acted[-1])))
        self.rest = chunk[protocol.execute :]
        return np.concatenate([committed, chunk[late:]])

    def advance(self, segment: Segment) -> None:
        """Take note of where the episode is now."""
        self.now = segment
        if len(segment.executed):
            self.executed.append(segment.executed)

    def record(self, crash: Crash | None = None) -> EpisodeRecord:
        """Return the record of the episode, which ended here or with a crash."""
        executed = np.concatenate(self.executed) if self.executed else np.zeros((0, 1), np.float32)
        thirds = np.diff(executed, n=3, axis=0)  # jerk is the third derivative of position
        decoding = self.episode.decoding
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
            samples=decoding.samples if isinstance(decoding, SampledDecoding) else 1,
            chunk_tokens=tuple(self.depths),
            jump=float(np.mean(self.jumps)) if self.jumps else None,
            start="" if self.now is None else self.now.start,
        )


class Rollout:
    """Run episodes of a policy in a pool of environments.

    The policy always computes `batch` rows, so that an episode's actions do not depend on which others happen to run
    beside it, nor on the number of processes.
    """

    def __init__(
        self,
        policy: Policy,
        pool: EnvironmentPool[Any],
        batch: int,
        finish: Finish,
        protocol: Protocol,
    ) -> None:
        self._policy = policy
        self._protocol = protocol
        self._pool = pool
        self._batch = batch
        self._finish = finish
        self._sizer = BatchSizer(batch, pool.processes)
        self._planned: deque[_Running] = deque()
        self._running: dict[Slot, _Running] = {}
        self._waiting: list[Slot] = []
        """Slots of running episodes that need a chunk."""

    def run(self, episodes: Iterable[Episode]) -> None:
        """Run all episodes, in about this order."""
        self._planned.extend(map(_Running, episodes))
        self._fill_slots()
        while self._running:
            # If all episodes wait for the policy, no environment has anything to answer.
            if len(self._waiting) < len(self._running):
                for slot, answer in self._pool.wait():
                    self._receive(slot, answer)
            self._fill_slots()
            if self._sizer.should_predict(len(self._waiting), len(self._running)):
                self._predict_waiting()

    def _fill_slots(self) -> None:
        """Begin as many episodes as should run side by side."""
        for slot in self._pool.slots[: self._sizer.episodes]:
            if slot not in self._running:
                self._begin(slot)

    def _begin(self, slot: Slot) -> None:
        """Begin the next episode in a slot, if there is one."""
        if self._planned:
            state = self._planned.popleft()
            self._running[slot] = state
            key = state.episode.key
            self._pool.send(slot, Reset(key.task, key.condition, state.episode.film))

    def _receive(self, slot: Slot, answer: Answer | Lost) -> None:
        """Take a slot's answer: its episode now waits for a chunk, or is over, or is to be begun again."""
        if isinstance(answer, OatError):
            raise answer  # a mistake such as an unknown task, which every other episode would meet as well
        if isinstance(answer, Lost):
            self._begin_again(slot)
            return
        if isinstance(answer, Segment) and not answer.ended:
            self._running[slot].advance(answer)
            if answer.seconds:  # a reset executes nothing, and says nothing about the time that a segment takes
                self._sizer.saw_segment(answer.seconds)
            self._waiting.append(slot)
            return
        state = self._running.pop(slot)
        if isinstance(answer, Segment):
            state.advance(answer)
            self._finish(state.record(), answer.video)
        elif state.attempt == 0:
            # Simulators crash for reasons that do not come again, such as memory; only the second crash counts.
            self._planned.appendleft(_Running(state.episode, attempt=1))
        else:
            self._finish(state.record(answer), None)
        self._begin(slot)

    def _begin_again(self, slot: Slot) -> None:
        """Begin a slot's episode again, if it has one, even if all that it did was to wait for a chunk."""
        if slot in self._running:
            state = self._running.pop(slot)
            self._waiting = [each for each in self._waiting if each != slot]
            # It was another slot's crash, and does not count as an attempt of this episode.
            self._planned.appendleft(_Running(state.episode, state.attempt))
            self._begin(slot)

    def _predict_waiting(self) -> None:
        """Predict a chunk for every episode that waits, and let their environments go on."""
        slots = self._waiting
        self._waiting = []
        # One call of the policy has one decoding for all of its rows.
        for decoding, alike in groupby(slots, lambda slot: self._running[slot].episode.decoding):
            group = list(alike)
            for first in range(0, len(group), self._batch):
                self._predict(decoding, group[first : first + self._batch])

    @torch.inference_mode()
    def _predict(self, decoding: Decoding, slots: Sequence[Slot]) -> None:
        """Predict the chunks of these episodes in one batch, and send each to its environment."""
        states = [self._running[slot] for slot in slots]
        begin = time.perf_counter()
        histories = [state.now.history for state in states if state.now is not None]
        values = {key: np.stack([history[key] for history in histories]) for key in histories[0]}
        observation = Observation(values, tuple(state.episode.instruction for state in states))
        # A function of episode and chunk, and not of the batch that the chunk happens to be computed in.
        noise = Noise.of([state.episode.seed for state in states], [state.chunks for state in states])
        previous = Previous.of([state.rest for state in states], self._policy.space.action_dim)
        chunk = self._policy.predict_chunk(observation, decoding, noise, pad_to=self._batch, previous=previous)
        actions = chunk.actions.cpu().numpy()
        valid = chunk.valid.tolist()
        tokens = chunk.steps.tolist()
        seconds = time.perf_counter() - begin
        self._sizer.saw_prediction(seconds)
        for row, (slot, state) in enumerate(zip(slots, states, strict=True)):
            # What did not decode must not be executed: the robot holds still instead.
            if valid[row]:
                acted: np.ndarray | None = state.splice(actions[row], self._protocol)
            else:
                acted = None
                state.rest = None
            self._pool.send(slot, Act(acted))
            state.chunks += 1
            state.depths.append(tokens[row])
            state.tokens += tokens[row]
            state.failed += not valid[row]
            state.seconds.append(seconds)
