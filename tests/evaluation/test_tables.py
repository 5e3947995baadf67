"""Tables say what the records say, and refuse to mix what was not run alike."""

import io
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from rich.console import Console

from oat.errors import InvalidOption, UnknownName
from oat.evaluation.comparisons import compare_policies, comparison_table, shared_conditions
from oat.evaluation.evaluate import compare
from oat.evaluation.records import EpisodeRecord, RecordLog
from oat.evaluation.summaries import summarize
from oat.evaluation.tables import policy_table, summary_table
from oat.tables.success import POOLED
from oat.tables.table import Table
from oat.tables.terminal import to_terminal
from tests.evaluation.test_records import record


def episodes(decoding: str, task: str, successes: int, count: int = 20, seeds: int = 2) -> list[EpisodeRecord]:
    return [
        replace(
            record(number),
            key=replace(record(number).key, decoding=decoding, task=task),
            success=number < successes,
            evaluation_seed=number % seeds,
            failed_decodes=int(number == 0),
        )
        for number in range(count)
    ]


def text(table: Table) -> str:
    console = Console(width=140, file=io.StringIO())
    with console.capture() as captured:
        console.print(to_terminal(table))
    return captured.get()


def test_summaries_count_and_pool() -> None:
    found = summarize([*episodes("K=1", "reach", 5), *episodes("K=1", "push", 15)])
    assert [(s.policy, s.task, s.episodes, s.success.estimate) for s in found] == [
        ("oat× K=1", "reach", 20, 0.25),
        ("oat× K=1", "push", 20, 0.75),
        ("oat× K=1", POOLED, 40, 0.5),
    ]
    assert astuple(found[0].over_seeds) == (pytest.approx(0.25), pytest.approx(0.05), 2, "evaluation")  # 3 and 2 of 10
    assert (found[0].tokens_per_chunk, found[0].failed_decodes, found[0].training_seeds) == (8.0, 1 / 40, 1)
    shown = text(summary_table(found))
    assert "±" in shown.splitlines()[2]
    assert "± is the standard error over 2 evaluation seeds" in shown
    assert "oat× K=1: from 1 training seed, scripted demonstrations" in shown
    assert "oat× K=1, reach: 2.5% of the chunks did not decode" in shown
    assert "initial condition" not in shown


def test_stand_ins_for_assets_are_told() -> None:
    """Records of before, which say nothing of assets, remain silent."""
    plain = episodes("K=1", "reach", 5)
    kitchen = [replace(each, versions="oat 1, robocasa 1.0.0, robosuite 1.5.2, stand-in kitchen") for each in plain]
    for records, told in ((plain, False), (kitchen, True)):
        found = summarize(records)
        for table in (summary_table(found), policy_table("t", found), comparison_table(records, plain)):
            assert ("assets: stand-in kitchen" in table.notes) == told


def test_tasks_count_alike() -> None:
    found = summarize([*episodes("K=1", "reach", 20), *episodes("K=1", "push", 0, count=5)])
    assert found[-1].success.estimate == 0.5
    assert found[-1].over_seeds.mean == 0.5


def test_training_seeds_are_the_seeds_that_count() -> None:
    """Of three trainings, each met the same conditions: those are clusters."""
    records = [
        replace(each, key=replace(each.key, training_seed=seed, checkpoint=f"w{seed}"))
        for seed, solved in enumerate((4, 8, 12))
        for each in episodes("K=1", "reach", solved)
    ]
    (found,) = summarize(records)
    assert (found.episodes, found.conditions, found.training_seeds) == (60, 20, 3)
    assert astuple(found.over_seeds) == (pytest.approx(0.4), pytest.approx(0.2 / 3**0.5), 3, "training")
    shown = text(summary_table([found]))
    assert "± is the standard error over 3 training seeds" in shown
    assert "60 episodes from 20 initial conditions: repeats are clusters in 95 %" in shown


def test_two_checkpoints_of_one_training_seed_are_two_policies() -> None:
    other = [replace(each, key=replace(each.key, checkpoint="v")) for each in episodes("K=1", "reach", 15)]
    found = summarize([*episodes("K=1", "reach", 5), *other])
    assert [(s.policy, s.success.estimate) for s in found] == [("oat× K=1 w", 0.25), ("oat× K=1 v", 0.75)]


def test_crashes_are_told_with_their_reason() -> None:
    records = episodes("K=1", "reach", 5)
    records[-1] = replace(
        records[-1], crashed=True, error="Traceback\n…\nValueError: the physics exploded\n", jerk=None
    )
    shown = " ".join(text(summary_table(summarize(records))).split())
    assert "oat× K=1, reach: the simulator died in 1 episode (ValueError: the physics exploded)" in shown


def test_scores_are_shown_where_they_tell_more_than_success() -> None:
    graded = [replace(each, best_score=0.5) for each in episodes("K=1", "pusht", 5)]
    assert "score" in text(summary_table(summarize(graded)))
    assert "50.0" in text(summary_table(summarize(graded)))
    plain = [replace(each, best_score=float(each.success)) for each in graded]
    assert "score" not in text(summary_table(summarize(plain)))


def test_comparisons_pair_conditions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = RecordLog(tmp_path / "records.jsonl")
    for each in (*episodes("K=1", "reach", 2), *episodes("K=8", "reach", 14)):
        log.append(each)
    log.close()
    compare(tmp_path, tmp_path / "records.jsonl", "oat× K=1", "oat× K=8")
    shown = capsys.readouterr().out
    assert "0 : 12" in shown
    assert "60.0" in shown
    assert "second: oat× K=8, from 1 training seed, scripted demonstrations" in shown
    with pytest.raises(InvalidOption, match="several policies"):
        compare(tmp_path, tmp_path)
    with pytest.raises(UnknownName, match="oat× K=8"):
        compare(tmp_path, tmp_path, "oat× K=1", "oat× K=7")
    with pytest.raises(InvalidOption, match="does not exist"):
        compare(tmp_path / "none", tmp_path)


def test_different_stored_starts_are_never_paired() -> None:
    """Another machine may have drawn another start for the same number; records of before do not say which it was."""
    here = [replace(each, start=f"start{each.key.condition}") for each in episodes("K=1", "CloseDrawer", 2)]
    there = [replace(each, start=f"other{each.key.condition}") for each in episodes("K=8", "CloseDrawer", 14)]
    mixed = [*here[:15], *there[15:]]
    assert shared_conditions(here, mixed) == shared_conditions(mixed, here) == [("CloseDrawer", n) for n in range(15)]
    assert compare_policies(here, [replace(each, start="") for each in there]).pairs == 20
    assert not any("left out" in note for note in comparison_table(here, here).notes)
    some = [*(replace(each, start=f"start{each.key.condition}") for each in there[:15]), *there[15:]]
    assert "5 conditions left out: begun at different stored starts" in comparison_table(here, some).notes
    with pytest.raises(InvalidOption, match="share no initial conditions"):
        compare_policies(here, there)


def test_comparisons_can_be_of_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A policy that comes closer is ahead where success does not tell."""
    log = RecordLog(tmp_path / "records.jsonl")
    for decoding, score in (("K=1", 0.25), ("K=8", 0.75)):
        for each in episodes(decoding, "pusht", 0):
            log.append(replace(each, best_score=score))
    log.close()
    compare(tmp_path, tmp_path, "oat× K=1", "oat× K=8", "score")
    shown = capsys.readouterr().out
    assert "second against first, score in %" in shown
    assert "0 : 20" in shown
    compare(tmp_path, tmp_path, "oat× K=1", "oat× K=8")
    assert "0 : 0" in capsys.readouterr().out


def test_repeats_of_a_condition_are_one_pair() -> None:
    """However often one condition is repeated, it says little about others."""
    first, second = (
        [
            replace(each, key=replace(each.key, condition=7, repeat=number))
            for number, each in enumerate(episodes(decoding, "reach", solved))
        ]
        for decoding, solved in (("K=1", 0), ("K=8", 20))
    )
    shown = text(comparison_table(first, second))
    assert "0 : 1" in shown
    assert "undecided" in shown


def test_a_comparison_averages_over_tasks() -> None:
    first = [*episodes("K=1", "reach", 0), *episodes("K=1", "push", 0, count=4)]
    second = [*episodes("K=8", "reach", 20), *episodes("K=8", "push", 0, count=4)]
    (row,) = (line for line in text(comparison_table(first, second)).splitlines() if POOLED in line)
    assert row.split()[2:6] == ["24", "0.0", "50.0", "50.0"]


def test_what_was_not_run_alike_is_not_put_side_by_side() -> None:
    mine = episodes("K=1", "reach", 3)
    for change in ({"protocol": "q"}, {"split": "selection"}):
        other = [replace(each, key=replace(each.key, **change)) for each in mine]  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="not made alike"):
            summarize([*mine, *other])
        with pytest.raises(InvalidOption, match="not made alike"):
            comparison_table(mine, other)
    with pytest.raises(InvalidOption, match="share no initial conditions"):
        comparison_table(mine, episodes("K=1", "push", 3))
