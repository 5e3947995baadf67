"""What table-latency times, and what it says of it."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from oat.data.chunks import WindowConfig, Windows
from oat.evaluation.claims import decide_rising
from oat.experiments import timings
from oat.experiments.latency import median_interval, tables
from oat.experiments.latency_records import TIMINGS_FILE, LatencyRecord, ShapeTimings, Timing, read_timings
from oat.experiments.paper import numbers as paper
from oat.experiments.study.methods import FAST
from oat.experiments.study.scales import SCALES
from oat.experiments.study.study import Study
from oat.experiments.timings import measure, smooth_episodes, untrained

SIMS = ("metaworld", "robomimic")


def test_an_untrained_fast_policy_takes_as_many_tokens_as_its_chunks_have() -> None:
    episodes = smooth_episodes(12)
    policy, tokens = untrained(FAST, Windows(episodes, WindowConfig(32, 1)), "tiny")
    assert tokens is not None
    assert 20 < tokens < 384
    for seed in range(3):
        chunk = policy.predict_chunk(policy.random_observation(1, seed))
        assert chunk.steps.tolist() == [round(tokens) + 1]  # and one to end


def test_the_interval_holds_the_median_19_times_of_20() -> None:
    random = np.random.default_rng(0)
    for count in (10, 30, 100):
        found = [median_interval(random.normal(size=count).tolist()) for _ in range(2000)]
        assert 0.94 < np.mean([each.low <= 0 <= each.high for each in found]) < 0.99


def test_the_interval_of_50_is_from_the_18th_to_the_33rd() -> None:
    """Which cover 96.7 %; the 19th to the 32nd cover 93.5 %."""
    found = median_interval([float(rank) for rank in range(1, 51)])
    assert (found.low, found.estimate, found.high) == (18, 25.5, 33)
    few = median_interval([3.0, 1.0, 2.0])
    assert (few.low, few.high) == (1, 3)


def test_claims_are_decided_by_turns() -> None:
    """Load that disturbs all methods alike blurs their medians, but not their order."""
    load = np.random.default_rng(0).uniform(1, 2, 50)
    times = {"OAT_1": (10 * load).tolist(), "OAT_2": (10.2 * load).tolist(), "OAT_4": (10.2 * load[::-1]).tolist()}
    one, two = (median_interval(times[label]) for label in ("OAT_1", "OAT_2"))
    assert one.high > two.low
    assert decide_rising(("c", ("OAT_1", "OAT_2")), times) == "claim: c: held (OAT_1 < OAT_2 in 50 of 50, p = 1.8e-15)"
    assert decide_rising(("c", ("OAT_2", "OAT_1")), times).startswith("claim: c: not held (OAT_2 < OAT_1 in 0 of 50")
    assert decide_rising(("c", ("OAT_1", "OAT_2", "OAT_4")), times).startswith("claim: c: undecided")


@pytest.mark.parametrize(("factor", "outcome"), [(1.03, "held"), (1.2, "not held"), (1.1, "undecided")])
def test_what_costs_as_much_is_near_in_every_turn(factor: float, outcome: str, tmp_path: Path) -> None:
    quest = np.random.default_rng(0).uniform(10, 20, 50)
    ours = quest * np.random.default_rng(1).uniform(factor - 0.03, factor + 0.03, 50)
    rows = {label: Timing(8, tuple(ours.tolist()), ()) for label in paper.LATENCY["metaworld"]}
    rows["QueST"] = Timing(8, tuple(quest.tolist()), ())
    kept = LatencyRecord("paper", {"metaworld": ShapeTimings("made up", "abc", "x86_64", "2", rows)})
    study = Study(SCALES["cpu"], "metaworld", tmp_path)
    (tmp_path / TIMINGS_FILE).write_text(json.dumps(asdict(kept)))
    (table,) = tables(study)
    (claim,) = (note for note in table.notes if "costs as much as QueST" in note)
    assert claim.startswith(f"claim: OAT_8 costs as much as QueST, within 10%: {outcome} (OAT_8 / QueST = ")
    assert "commit abc" in table.notes[0]


def test_a_shape_that_was_timed_is_not_timed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, calls = Study(replace(SCALES["smoke"], name="cpu"), "metaworld", tmp_path), list[int]()

    def time_all(*_: object, **__: object) -> dict[str, Timing]:
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {"DP": Timing(None, (float(len(calls)),), ())}

    monkeypatch.setattr(timings, "_time_all", time_all)
    monkeypatch.setattr(timings, "commit", lambda: f"commit {len(calls)}")
    with pytest.raises(KeyboardInterrupt):
        measure(study)
    measure(study)
    measure(study)
    kept = read_timings(study)
    assert kept is not None
    assert [shape.timings["DP"].ms[0] for shape in kept.shapes.values()] == [1, 2, 4, 5]
    assert [shape.commit for shape in kept.shapes.values()] == ["commit 1", "commit 2", "commit 4", "commit 5"]


def test_a_file_that_says_once_what_was_timed_with_is_read(tmp_path: Path) -> None:
    shapes = {sim: {"source": sim, "timings": {"DP": {"tokens": None, "ms": [1.0], "onnx_ms": []}}} for sim in SIMS}
    written = {"preset": "paper", "commit": "abc", "machine": "x86_64", "torch": "2.9", "shapes": shapes}
    (tmp_path / TIMINGS_FILE).write_text(json.dumps(written))
    kept = read_timings(Study(SCALES["cpu"], "metaworld", tmp_path))
    assert kept is not None
    timing = {"DP": Timing(None, (1.0,), ())}
    assert kept.shapes == {sim: ShapeTimings(sim, "abc", "x86_64", "2.9", timing) for sim in SIMS}
