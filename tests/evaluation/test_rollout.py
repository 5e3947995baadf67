"""Episodes are run once each, as their keys say, whatever happens beside them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from oat.data.episodes import Episodes
from oat.errors import UnknownName
from oat.evaluation.protocol import PROTOCOLS, Protocol, find_protocol
from oat.evaluation.records import EpisodeKey, EpisodeRecord
from oat.evaluation.rollout import Episode, run_episodes
from oat.evaluation.workers import Act, Reset, Segment, Worker
from oat.nn.transformer import Width
from oat.policies import AutoregressivePolicy, TokenDecoding
from oat.policies.context import describe_context
from oat.policies.policy import PolicyConfig
from oat.policies.predictor import Chunk
from tests.evaluation.point import CRASH_ALWAYS, CRASH_ONCE, FAIL_ALWAYS, STATE, make_point
from tests.tokenizers.fitted import DIM, HORIZON, fitted

PROTOCOL = Protocol("point", max_steps=50, success="after as many steps as the condition says", execute=8)


def make_policy(kind: str = "bin") -> AutoregressivePolicy:
    torch.manual_seed(0)
    states = np.random.default_rng(0).normal(size=(40, DIM + 1)).astype(np.float32)
    episodes = Episodes.from_arrays(states[:, :DIM], [40], ["move"], observations={STATE: states})
    return AutoregressivePolicy(describe_context(episodes, (STATE,)), fitted(kind), PolicyConfig(Width(32, 16), 1))


def run(
    folder: Path,
    conditions: Sequence[int],
    workers: int = 2,
    policy: AutoregressivePolicy | None = None,
    protocol: Protocol = PROTOCOL,
) -> dict[int, EpisodeRecord]:
    keys = [EpisodeKey(protocol.hash, "bin", 0, "weights", "all", str(folder), c, 0) for c in conditions]
    records: list[EpisodeRecord] = []
    plan = [Episode(key, "move") for key in keys]
    run_episodes(policy or make_policy(), TokenDecoding(), protocol, plan, records.append, workers, make=make_point)
    assert len(records) == len(conditions)
    return {record.key.condition: record for record in records}


def without_times(record: EpisodeRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if not name.startswith("inference")}


def test_episodes_end_with_success_or_the_time_limit(tmp_path: Path) -> None:
    records = run(tmp_path, [3, 8, 9, 50, 60])
    assert {c: (r.success, r.steps, r.chunks) for c, r in records.items()} == {
        3: (True, 3, 1),
        8: (True, 8, 1),
        9: (True, 9, 2),
        50: (True, 50, 7),
        60: (False, 50, 7),
    }
    assert records[60].score == records[60].best_score == pytest.approx(50 / 60)
    assert records[9].tokens == 2 * HORIZON * DIM
    assert all(not r.crashed and r.failed_decodes == 0 and r.jerk > 0 for c, r in records.items() if c > 3)


def test_the_same_command_twice_gives_the_same_records(tmp_path: Path) -> None:
    """Whatever the order: rows do not depend on each other, and noise belongs to episodes."""
    conditions = [12, 30, 17, 60, 25, 9]
    first = run(tmp_path, conditions, workers=3)
    second = run(tmp_path, conditions[::-1], workers=3)
    assert {c: without_times(r) for c, r in first.items()} == {c: without_times(r) for c, r in second.items()}
    assert len({r.jerk for r in first.values()}) == len(conditions)


def test_a_worker_that_dies_is_replaced_and_its_episode_tried_again(tmp_path: Path) -> None:
    records = run(tmp_path, [5, CRASH_ONCE, 6, CRASH_ALWAYS, FAIL_ALWAYS, 7])
    assert {c for c, r in records.items() if r.crashed} == {CRASH_ALWAYS, FAIL_ALWAYS}
    assert not records[CRASH_ALWAYS].success
    assert records[CRASH_ONCE].steps == 50
    assert all(records[c].success and records[c].steps == c for c in (5, 6, 7))


def test_what_does_not_decode_holds_still_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy()

    def nothing(observation: object, *_: object, pad_to: int) -> Chunk:
        rows = len(observation)  # type: ignore[arg-type]
        actions = torch.full((rows, HORIZON, DIM), torch.nan)
        return Chunk(actions, torch.zeros(rows, dtype=torch.bool), torch.full((rows,), 5))

    monkeypatch.setattr(policy, "predict_chunk", nothing)
    (record,) = run(tmp_path, [60], policy=policy).values()
    assert (record.failed_decodes, record.chunks, record.steps, record.jerk, record.tokens) == (7, 7, 50, 0.0, 35)


def test_a_worker_shows_the_last_frames(tmp_path: Path) -> None:
    worker = Worker(PROTOCOL, make_point)
    worker.send(Reset(str(tmp_path), 30))
    first = worker.receive()
    worker.send(Act(np.ones((4, DIM), np.float32), 4))
    then = worker.receive()
    worker.send(Act(None, 3))
    last = worker.receive()
    worker.close()
    assert isinstance(first, Segment)
    assert isinstance(then, Segment)
    assert isinstance(last, Segment)
    assert first.history[STATE][:, -1].tolist() == [0, 0]
    assert then.history[STATE][:, -1].tolist() == [3, 4]
    assert last.history[STATE][:, -1].tolist() == [6, 7]
    np.testing.assert_array_equal(last.executed, np.zeros((3, DIM)))
    np.testing.assert_array_equal(then.history[STATE][1, :DIM], last.history[STATE][1, :DIM])


def test_a_policy_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    from dataclasses import replace

    from oat.errors import InvalidObservation

    with pytest.raises(InvalidObservation, match=r"observation\.state must be"):
        run(tmp_path, [5], protocol=replace(PROTOCOL, obs_horizon=3))


def test_protocols_are_told_apart() -> None:
    assert find_protocol("metaworld") == PROTOCOLS["metaworld"]
    assert find_protocol("metaworld", execute=8).hash != PROTOCOLS["metaworld"].hash
    with pytest.raises(UnknownName, match="metaworld"):
        find_protocol("metawrld")
