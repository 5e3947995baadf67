"""Episodes are run once each, as their keys say, whatever happens beside them."""

from collections.abc import Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oat.data.episodes import STATE, Episodes
from oat.errors import InvalidObservation, SimulatorError
from oat.evaluation.records import EpisodeKey, EpisodeRecord
from oat.evaluation.rollout import Episode, Rollout
from oat.evaluation.workers.direct import DirectTransport
from oat.evaluation.workers.pool import EnvironmentPool, Lost, Slot
from oat.evaluation.workers.processes import LocalProcesses, PipeLink
from oat.evaluation.workers.worker import Act, Crash, EnvironmentWorker, Reset, Segment
from oat.interfaces import Observation
from oat.nn.width import Width
from oat.policies import AutoregressivePolicy, Chunk, Decoding, TokenDecoding
from oat.policies.choosing import Previous
from oat.policies.config import AutoregressiveConfig
from oat.policies.context import describe_context
from oat.policies.stopping import RandomDepth
from oat.protocol import Protocol
from tests.evaluation.point import (
    CRASH_ALWAYS,
    CRASH_ONCE,
    DIM,
    FAIL_ALWAYS,
    UNBUILDABLE,
    PointEnv,
    StoringPointEnv,
    make_point,
)
from tests.tokenizers.fitted import HORIZON, fitted

PROTOCOL = Protocol("point", max_steps=50, success="after as many steps as the condition says", execute=8)


def make_policy() -> AutoregressivePolicy:
    """An untrained OAT policy whose chunks depend on every token: what training begins with zeros is random."""
    torch.manual_seed(0)
    states = np.random.default_rng(0).normal(size=(40, DIM + 1)).astype(np.float32)
    episodes = Episodes.from_arrays(states[:, :DIM], [40], ["move"], observations={STATE: states})
    tokenizer = deepcopy(fitted("oat"))
    for parameter in tokenizer.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.2)
    return AutoregressivePolicy(describe_context(episodes, (STATE,)), tokenizer, AutoregressiveConfig(Width(32, 16), 1))


def plan(
    folder: Path, conditions: Sequence[int], decoding: Decoding | None = None, film: Sequence[int] = ()
) -> list[Episode]:
    """Episodes of the point, one for each condition."""
    decoding = decoding or TokenDecoding()
    keys = [
        EpisodeKey(PROTOCOL.hash, "oat", 0, "weights", str(decoding), str(folder), "reporting", condition, 0)
        for condition in conditions
    ]
    return [Episode(key, decoding, "move", film=key.condition in film) for key in keys]


def open_pool(processes: int = 2, slots: int = 2, protocol: Protocol = PROTOCOL) -> EnvironmentPool[PipeLink]:
    return EnvironmentPool(LocalProcesses(protocol, make_point), processes, slots)


def run(
    episodes: Sequence[Episode],
    policy: AutoregressivePolicy | None = None,
    pool: EnvironmentPool[Any] | None = None,
    batch: int = 3,
) -> dict[int, EpisodeRecord]:
    records: list[EpisodeRecord] = []
    with closing(pool or open_pool()) as workers:
        Rollout(policy or make_policy(), workers, batch, lambda record, video: records.append(record), PROTOCOL).run(
            episodes
        )
    assert len(records) == len(episodes)
    return {record.key.condition: record for record in records}


def without_times(records: dict[int, EpisodeRecord]) -> dict[int, EpisodeRecord]:
    return {c: replace(record, inference_ms_p50=None, inference_ms_p95=None) for c, record in records.items()}


def test_episodes_end_with_success_or_the_time_limit(tmp_path: Path) -> None:
    records = run(plan(tmp_path, [3, 8, 9, 50, 60]))
    assert {c: (r.success, r.steps, r.chunks) for c, r in records.items()} == {
        3: (True, 3, 1),
        8: (True, 8, 1),
        9: (True, 9, 2),
        50: (True, 50, 7),
        60: (False, 50, 7),
    }
    assert records[60].score == records[60].best_score == pytest.approx(50 / 60)
    assert records[9].tokens == 2 * 8
    assert records[3].jerk is None
    for condition, record in records.items():
        assert not record.crashed
        assert record.error == ""
        assert record.failed_decodes == 0
        assert condition == 3 or (record.jerk or 0) > 0
        assert 0 < (record.inference_ms_p50 or 0) <= (record.inference_ms_p95 or 0)


def test_stored_starts_are_recorded(tmp_path: Path) -> None:
    """Only where the simulator stores them: elsewhere the condition's number says it all."""

    def make(protocol: Protocol, task: str) -> PointEnv:
        return StoringPointEnv(Path(task))

    stored = run(plan(tmp_path, [3, 9]), pool=EnvironmentPool(DirectTransport(PROTOCOL, make), 1, 2))
    assert {condition: record.start for condition, record in stored.items()} == {3: "start 3", 9: "start 9"}
    assert {record.start for record in run(plan(tmp_path, [3, 9])).values()} == {""}


def test_the_same_command_twice_gives_the_same_records(tmp_path: Path) -> None:
    """Whatever the order and the number of workers: rows do not depend on each other, and noise belongs to episodes."""
    conditions = [12, 30, 17, 60, 25, 9]
    first = run(plan(tmp_path, conditions), pool=open_pool(2, 3))
    second = run(plan(tmp_path, conditions[::-1]), pool=open_pool(1, 1))
    assert without_times(first) == without_times(second)
    assert len({r.jerk for r in first.values()}) == len(conditions)


def test_episodes_that_decode_differently_run_side_by_side(tmp_path: Path) -> None:
    policy, conditions = make_policy(), [20, 21, 22, 23]
    for k in (1, 4):
        alone = run(plan(tmp_path, conditions, TokenDecoding(k)), policy)
        assert all(r.tokens == k * r.chunks for r in alone.values())
        mixed = [
            episode
            for condition in conditions
            for episode in plan(tmp_path, [condition], TokenDecoding(k if condition % 2 else 2))
        ]
        beside = run(mixed, policy)
        for condition in (21, 23):
            assert without_times(beside)[condition] == without_times(alone)[condition]


def test_a_late_chunk_takes_over_from_the_rest_of_the_one_before(tmp_path: Path) -> None:
    """Chunk n says n at every step: what the point was moved by tells which chunk was executed when."""
    policy, protocol = make_policy(), replace(PROTOCOL, delay=3)
    seen: list[tuple[float, np.ndarray]] = []

    def predict_chunk(observation: Observation, *_: object, previous: Previous, **__: object) -> Chunk:
        seen.append((float(observation.values[STATE][0, -1, 0]), previous.actions[0].numpy()))
        actions = torch.full((1, HORIZON, DIM), float(len(seen) - 1))
        return Chunk(actions, torch.ones(1, dtype=torch.bool), torch.full((1,), 8))

    policy.predict_chunk = predict_chunk  # type: ignore[assignment, method-assign]
    records: list[EpisodeRecord] = []
    with closing(open_pool(1, 1, protocol)) as pool:
        Rollout(policy, pool, 1, lambda record, video: records.append(record), protocol).run(plan(tmp_path, [30]))
    moved = np.diff([place for place, _ in seen])
    np.testing.assert_allclose(moved, [0.0, 0.1 * 5, 0.1 * (3 + 2 * 5)], atol=1e-5)
    assert [rest.shape for _, rest in seen] == [(0, DIM)] + [(HORIZON - 8, DIM)] * 3
    assert all((rest == number - 1).all() for number, (_, rest) in enumerate(seen))
    (record,) = records
    assert record.chunk_tokens == (8,) * record.chunks
    assert record.jump == pytest.approx(3**0.5)


def test_what_was_drawn_is_recorded_for_every_chunk(tmp_path: Path) -> None:
    decoding = TokenDecoding(samples=3, stop=RandomDepth((0.5, 0.0, 0.5)), executed=8)
    records = run(plan(tmp_path, [40, 45], decoding))
    for record in records.values():
        assert record.samples == 3
        assert len(record.chunk_tokens) == record.chunks
        assert set(record.chunk_tokens) <= {1, 3}
        assert sum(record.chunk_tokens) == record.tokens
        assert record.jump is not None
    again = run(plan(tmp_path, [45, 40], decoding), batch=3)
    assert without_times(again) == without_times(records)


def test_sampling_differs_between_tasks_conditions_and_repeats_only() -> None:
    key = plan(Path("a"), [1])[0].key
    others = [replace(key, task="b"), replace(key, condition=2), replace(key, repeat=1)]
    assert len({Episode(each, TokenDecoding(), "").seed for each in (key, *others)}) == 4
    same = [replace(key, method="dp"), replace(key, training_seed=1), replace(key, checkpoint="x")]
    assert len({Episode(each, TokenDecoding(), "").seed for each in (key, *same)}) == 1


def test_a_worker_that_dies_is_replaced_and_its_episode_tried_again(tmp_path: Path) -> None:
    records = run(plan(tmp_path, [5, CRASH_ONCE, 6, CRASH_ALWAYS, FAIL_ALWAYS, 7]))
    assert {c for c, r in records.items() if r.crashed} == {CRASH_ALWAYS, FAIL_ALWAYS}
    assert not records[CRASH_ALWAYS].success
    assert "exit code 7" in records[CRASH_ALWAYS].error
    assert "the physics exploded" in records[FAIL_ALWAYS].error
    assert records[CRASH_ONCE].steps == 50
    assert all(records[c].success and records[c].steps == c for c in (5, 6, 7))


def test_an_episode_is_not_blamed_for_its_neighbours(tmp_path: Path) -> None:
    """All sit in one process, which dies four times; who was not the cause begins again as often as it takes.

    That includes those that wait for a chunk when it dies, whose environments died with it.
    """
    records = run(plan(tmp_path, [60, CRASH_ALWAYS, 61, CRASH_ALWAYS + 10, 62]), pool=open_pool(1, 5))
    assert {c for c, r in records.items() if r.crashed} == {CRASH_ALWAYS, CRASH_ALWAYS + 10}
    assert without_times({c: records[c] for c in (60, 61, 62)}) == without_times(run(plan(tmp_path, [60, 61, 62])))


def test_what_cannot_be_built_ends_the_run(tmp_path: Path) -> None:
    """Another attempt would meet it again; no episode is to blame."""
    with pytest.raises(SimulatorError, match=r"cannot build .*unbuildable.* \(RuntimeError: a mesh is missing\)"):
        run(plan(tmp_path / UNBUILDABLE, [5]))


def test_what_does_not_decode_holds_still_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy()

    def nothing(observation: object, *_: object, pad_to: int, previous: Previous) -> Chunk:
        rows = len(observation)  # type: ignore[arg-type]
        actions = torch.full((rows, HORIZON, DIM), torch.nan)
        return Chunk(actions, torch.zeros(rows, dtype=torch.bool), torch.full((rows,), 5))

    monkeypatch.setattr(policy, "predict_chunk", nothing)
    (record,) = run(plan(tmp_path, [60]), policy).values()
    assert (record.failed_decodes, record.chunks, record.steps, record.jerk, record.tokens) == (7, 7, 50, 0.0, 35)


def test_a_policy_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidObservation, match=r"observation\.state must be"):
        run(plan(tmp_path, [5]), pool=open_pool(protocol=replace(PROTOCOL, obs_horizon=3)))


def test_a_worker_shows_the_last_frames(tmp_path: Path) -> None:
    slot = Slot(0, 1)
    segments = []
    with closing(open_pool(protocol=replace(PROTOCOL, execute=4))) as pool:
        for message in (Reset(str(tmp_path), 30), Act(np.ones((HORIZON, DIM), np.float32)), Act(None)):
            pool.send(slot, message)
            ((answered, segment),) = pool.wait()
            assert answered == slot
            assert isinstance(segment, Segment)
            segments.append(segment)
    first, then, last = segments
    assert first.history[STATE][:, -1].tolist() == [0, 0]
    assert then.history[STATE][:, -1].tolist() == [3, 4]
    assert last.history[STATE][:, -1].tolist() == [7, 8]
    assert then.executed.shape == (4, DIM)
    np.testing.assert_array_equal(last.executed, np.zeros((4, DIM)))
    np.testing.assert_array_equal(then.history[STATE][1, :DIM], last.history[STATE][1, :DIM])


def test_a_process_that_dies_blames_the_message_it_was_busy_with(tmp_path: Path) -> None:
    """The slot before it has its answer, and is lost like those after it; then the process is there again."""
    chunk = np.zeros((HORIZON, DIM), np.float32)
    with closing(open_pool(1, 3)) as pool:
        for slot, condition in zip(pool.slots, (30, CRASH_ALWAYS, 31), strict=True):
            pool.send(slot, Reset(str(tmp_path), condition))
        assert all(isinstance(answer, Segment) for _, answer in _wait_for(pool, 3))
        for slot in pool.slots:
            pool.send(slot, Act(chunk))
        answers = [answer for _, answer in _wait_for(pool, 4)]
        assert [type(answer) for answer in answers] == [Segment, Crash, Lost, Lost]
        pool.send(pool.slots[1], Reset(str(tmp_path), 30))
        assert isinstance(pool.wait()[0][1], Segment)


def _wait_for(pool: EnvironmentPool[PipeLink], count: int) -> list[tuple[Slot, object]]:
    answers: list[tuple[Slot, object]] = []
    while len(answers) < count:
        answers.extend(pool.wait())
    return answers


def test_only_processes_that_are_needed_are_started(tmp_path: Path) -> None:
    pool = open_pool(processes=3, slots=4)
    run(plan(tmp_path, [5, 6]), pool=pool)
    assert len(pool._links) == 2
    assert len(pool.slots) == 12


@pytest.mark.parametrize(("execute", "expected"), [(8, [7, 8, 15, 16, 17, 18]), (1, list(range(1, 19)))])
def test_only_frames_that_the_policy_will_see_are_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute: int, expected: list[int]
) -> None:
    worker, observed = EnvironmentWorker(replace(PROTOCOL, max_steps=18, execute=execute), make_point), []
    step = PointEnv.step

    def watched(env: PointEnv, action: np.ndarray, observe: bool = True) -> object:
        outcome = step(env, action, observe)
        observed.extend([env.steps] * observe)
        return outcome

    monkeypatch.setattr(PointEnv, "step", watched)
    answer = worker.answer(Reset(str(tmp_path), 99))
    while isinstance(answer, Segment) and not answer.ended:
        answer = worker.answer(Act(np.zeros((HORIZON, DIM), np.float32)))
        assert isinstance(answer, Segment)
        assert answer.history[STATE][1, -1] == worker.steps
    assert observed == expected


def test_a_host_survives_what_it_is_asked(tmp_path: Path) -> None:
    worker = EnvironmentWorker(PROTOCOL, make_point)
    assert isinstance(worker.answer(Act(None)), Crash)  # before any episode
    assert isinstance(worker.answer(Reset(str(tmp_path), 5)), Segment)
    assert len(worker.environments) == 1
    worker.answer(Reset(str(tmp_path / "other"), 5))
    assert list(worker.environments) == [str(tmp_path / "other")]  # one at a time
