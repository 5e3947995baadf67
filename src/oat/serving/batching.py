"""Compute chunks on one thread, and answer the requests that wait for it at the same time in one batch."""

import asyncio
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from oat.errors import InvalidMessage, PolicyServerError
from oat.interfaces import Observation
from oat.policies.choosing import Previous
from oat.policies.decoding import Decoding, TokenDecoding
from oat.policies.predictor import BasePredictor
from oat.policies.sampling import Noise
from oat.serving.messages import UNDECODABLE
from oat.serving.metrics import Metrics
from oat.serving.requests import Request


@dataclass(frozen=True)
class Answer:
    """Hold the chunk that answers the request of one robot."""

    actions: np.ndarray
    steps: int
    """Tokens generated, or denoising steps taken."""
    seconds: float
    """Seconds that the computation took."""


@dataclass(frozen=True)
class _Job:
    """Hold a request that waits for its chunk, and the future that will hold the answer."""

    request: Request
    noise: tuple[int, int]
    arrived: float
    future: "asyncio.Future[Answer]"


class InferenceThread:
    """Compute chunks on a thread of its own, so that the event loop serves connections meanwhile."""

    def __init__(
        self,
        policy: BasePredictor,
        decoding: Decoding | None,
        deadline_ms: float | None,
        max_batch: int,
        metrics: Metrics,
    ) -> None:
        self.policy = policy
        self.decoding = decoding or policy.default_decoding
        self.deadline_ms = deadline_ms
        self._max_batch = max_batch
        self._metrics = metrics
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="oat-inference", daemon=True)
        for rows in range(1, max_batch + 1):  # compilers specialise on the batch size: no client waits for that
            policy.warm_up(rows, self.decoding)
        self._thread.start()

    async def infer(self, request: Request, noise: tuple[int, int], arrived: float) -> Answer:
        """Return the answer to a request, without blocking the event loop while it is computed."""
        job = _Job(request, noise, arrived, asyncio.get_running_loop().create_future())
        self._jobs.put(job)
        return await job.future

    def close(self) -> None:
        """Answer the requests that are queued, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        """Take jobs from the queue, as many as fit into a batch, until None ends the loop."""
        while (first := self._jobs.get()) is not None:
            jobs: list[_Job] = [first]
            while len(jobs) < self._max_batch and not self._jobs.empty():
                following = self._jobs.get()
                if following is None:  # these jobs come first; the outer loop meets the end again
                    self._jobs.put(None)
                    break
                jobs.append(following)
            fine = sorted((job for job in jobs if self._is_fine(job)), key=_prefix)
            for _, alike in groupby(fine, _prefix):
                self._answer(list(alike))

    def _is_fine(self, job: _Job) -> bool:
        """Return whether a request can be computed; otherwise answer it with the reason.

        Every request is checked by itself, so that a bad one does not spoil the batch of the others.
        """
        try:
            self.policy.check_decoding(self._decoding(job.request))
            self.policy.read(_observe([job]))
        except Exception as error:
            _resolve(job, error)
            return False
        return True

    def _decoding(self, request: Request) -> Decoding:
        """Return the server's decoding with as many tokens as the request asks for."""
        if request.num_tokens is None:
            return self.decoding
        if not isinstance(self.decoding, TokenDecoding):
            raise InvalidMessage("this policy generates no tokens: leave out num_tokens")
        if self.decoding.num_tokens is not None and request.num_tokens > self.decoding.num_tokens:
            raise InvalidMessage(f"this server generates at most {self.decoding.num_tokens} tokens")
        return replace(self.decoding, num_tokens=request.num_tokens)

    def _answer(self, jobs: Sequence[_Job]) -> None:
        """Compute the chunks of jobs that ask for equally many tokens, and answer each."""
        begin = time.perf_counter()
        try:
            noise = Noise.of([job.noise[0] for job in jobs], [job.noise[1] for job in jobs])
            left = self._time_left(jobs, begin)
            rests = Previous.of([job.request.previous for job in jobs], self.policy.space.action_dim)
            decoding = self._decoding(jobs[0].request)
            chunk = self.policy.predict_chunk(_observe(jobs), decoding, noise, deadline_ms=left, previous=rests)
        except Exception as error:  # whatever it is, these clients must hear of it and the thread must go on
            for job in jobs:
                _resolve(job, error)
            return
        self._metrics.batches += 1
        seconds = time.perf_counter() - begin
        actions = chunk.actions.cpu().numpy()
        valid = chunk.valid.tolist()
        steps = chunk.steps.tolist()
        for row, job in enumerate(jobs):
            undecodable = PolicyServerError(UNDECODABLE)
            _resolve(job, Answer(actions[row], int(steps[row]), seconds) if valid[row] else undecodable)

    def _time_left(self, jobs: Sequence[_Job], now: float) -> float | None:
        """Return the milliseconds until the earliest deadline of a batch.

        They are always positive, so that one token is generated even when the deadline has passed.
        """
        if self.deadline_ms is None:
            return None
        return max(1e-3, self.deadline_ms - 1e3 * (now - min(job.arrived for job in jobs)))


def _prefix(job: _Job) -> int:
    """Return the number of tokens that a job asks for; jobs with equal numbers are computed together."""
    return job.request.num_tokens or 0


def _observe(jobs: Sequence[_Job]) -> Observation:
    """Return the observations of jobs as one batch, a row for each job."""
    keys = jobs[0].request.frames
    values = {key: np.stack([job.request.frames[key] for job in jobs]) for key in keys}
    return Observation(values, tuple(job.request.task for job in jobs))


def _resolve(job: _Job, outcome: Answer | Exception) -> None:
    """Hand an outcome to the event loop, whose futures must not be touched from this thread."""

    def settle() -> None:
        if job.future.cancelled():  # the client has gone meanwhile
            return
        if isinstance(outcome, Exception):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)

    job.future.get_loop().call_soon_threadsafe(settle)
