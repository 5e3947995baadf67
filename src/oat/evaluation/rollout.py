"""Any policy in any simulator: receding horizon, batched over the workers that wait; no episode waits for another."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from oat.data.shuffle import derive_key
from oat.errors import SimulatorError
from oat.evaluation.protocol import Protocol
from oat.evaluation.records import EpisodeKey, EpisodeRecord
from oat.evaluation.workers import Act, MakeEnvironment, Reset, Segment, Worker, make_environment, wait_for_any
from oat.interfaces import Observation
from oat.policies.decoding import Decoding, Noise
from oat.policies.policy import Policy


@dataclass(frozen=True)
class Episode:
    """An episode to run."""

    key: EpisodeKey
    instruction: str
    """The task as the policy knows it."""

    @property
    def seed(self) -> int:
        """Of the policy's sampling: methods that are compared draw alike."""
        return derive_key(self.key.condition, self.key.repeat)


@dataclass
class _Running:
    """An episode under way."""

    episode: Episode
    attempt: int = 0
    history: Segment | None = None
    executed: list[np.ndarray] = field(default_factory=list)
    chunks: int = 0
    tokens: int = 0
    failed: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def steps(self) -> int:
        return sum(map(len, self.executed))


def run_episodes(
    policy: Policy,
    decoding: Decoding,
    protocol: Protocol,
    episodes: Iterable[Episode],
    finish: Callable[[EpisodeRecord], None],
    workers: int,
    data_source: str = "",
    versions: str = "",
    make: MakeEnvironment = make_environment,
) -> None:
    """Run all episodes; `finish` gets each one's record when it ends.

    The policy always computes as many rows as there are workers, so that an episode's actions do not depend on which
    others happen to run beside it.
    """
    waiting, running = deque(_Running(episode) for episode in episodes), dict[Worker, _Running]()
    crew = [Worker(protocol, make) for _ in range(min(workers, len(waiting)))]
    rows = len(crew)
    try:
        for worker in crew:
            _begin(worker, waiting, running)
        while running:
            thinking = []
            for worker in wait_for_any(list(running)):
                state, answer = running[worker], worker.receive()
                if isinstance(answer, SimulatorError):
                    replacement = _replace(worker, crew, protocol, make)
                    del running[worker]
                    if state.attempt == 0:
                        waiting.appendleft(_Running(state.episode, attempt=1))
                    else:
                        finish(_record(state, data_source, versions, crashed=True))
                    _begin(replacement, waiting, running)
                    continue
                state.history = answer
                state.executed += [answer.executed] if len(answer.executed) else []
                if answer.success or state.steps >= protocol.max_steps:
                    finish(_record(state, data_source, versions))
                    del running[worker]
                    _begin(worker, waiting, running)
                else:
                    thinking.append(worker)
            if thinking:
                _think(policy, decoding, protocol, {worker: running[worker] for worker in thinking}, rows)
    finally:
        for worker in crew:
            worker.close()


def _begin(worker: Worker, waiting: deque[_Running], running: dict[Worker, _Running]) -> None:
    if waiting:
        state = waiting.popleft()
        running[worker] = state
        worker.send(Reset(state.episode.key.task, state.episode.key.condition))


def _replace(worker: Worker, crew: list[Worker], protocol: Protocol, make: MakeEnvironment) -> Worker:
    worker.close()
    crew[crew.index(worker)] = replacement = Worker(protocol, make)
    return replacement


def _think(policy: Policy, decoding: Decoding, protocol: Protocol, states: dict[Worker, _Running], rows: int) -> None:
    """Predict a chunk for every episode that waits, and let the workers go on."""
    begin = time.perf_counter()
    histories = [state.history.history for state in states.values() if state.history is not None]
    values = {key: np.stack([history[key] for history in histories]) for key in histories[0]}
    observation = Observation(values, tuple(state.episode.instruction for state in states.values()))
    noise = Noise.of([state.episode.seed for state in states.values()], [state.chunks for state in states.values()])
    chunk = policy.predict_chunk(observation, decoding, noise, pad_to=rows)
    seconds = time.perf_counter() - begin
    actions, valid, taken = chunk.actions.cpu().numpy(), chunk.valid.tolist(), chunk.steps.tolist()
    for row, (worker, state) in enumerate(states.items()):
        state.chunks += 1
        state.tokens += int(taken[row])
        state.failed += not valid[row]
        state.seconds.append(seconds)
        steps = min(protocol.execute, actions.shape[1], protocol.max_steps - state.steps)
        worker.send(Act(actions[row, :steps] if valid[row] else None, steps))


def _record(state: _Running, data_source: str, versions: str, crashed: bool = False) -> EpisodeRecord:
    actions = np.concatenate(state.executed) if state.executed else np.zeros((0, 1), np.float32)
    thirds = np.diff(actions, n=3, axis=0)
    last, milliseconds = state.history, 1e3 * np.array(state.seconds or [0.0])
    return EpisodeRecord(
        key=state.episode.key,
        success=last is not None and last.success and not crashed,
        score=0.0 if last is None else last.score,
        best_score=0.0 if last is None else last.best_score,
        steps=state.steps,
        chunks=state.chunks,
        tokens=state.tokens,
        failed_decodes=state.failed,
        jerk=float(np.square(thirds).mean()) if thirds.size else 0.0,
        inference_ms_p50=float(np.quantile(milliseconds, 0.5)),
        inference_ms_p95=float(np.quantile(milliseconds, 0.95)),
        data_source=data_source,
        versions=versions,
        crashed=crashed,
    )
