"""Tables say what the records say, and refuse to mix what was not run alike."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from oat.errors import InvalidOption, UnknownName
from oat.evaluation.evaluate import compare
from oat.evaluation.records import EpisodeRecord, RecordLog
from oat.evaluation.tables import POOLED, comparison_table, summarize, summary_table
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
        console.print(table)
    return captured.get()


def test_summaries_count_and_pool() -> None:
    found = summarize([*episodes("K=1", "reach", 5), *episodes("K=1", "push", 15)])
    assert [(s.task, s.episodes, s.success.estimate) for s in found] == [
        ("reach", 20, 0.25),
        ("push", 20, 0.75),
        (POOLED, 40, 0.5),
    ]
    assert found[0].over_seeds == pytest.approx((0.25, 0.05))  # 3 and 2 of 10
    assert (found[0].tokens_per_chunk, found[0].failed_decodes, found[0].training_seeds) == (8.0, 1 / 40, 1)
    shown = text(summary_table(found))
    assert "25.0" in shown
    assert "2.5% of the chunks did not decode" in shown
    assert "25.0 ± 5.0 over evaluation seeds" in shown


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
    compare(tmp_path, tmp_path / "records.jsonl", "oat K=1", "oat K=8")
    shown = capsys.readouterr().out
    assert "0 : 12" in shown
    assert "60.0" in shown
    assert "second" in shown
    with pytest.raises(InvalidOption, match="several policies"):
        compare(tmp_path, tmp_path)
    with pytest.raises(UnknownName, match="oat K=8"):
        compare(tmp_path, tmp_path, "oat K=1", "oat K=7")
    with pytest.raises(InvalidOption, match="does not exist"):
        compare(tmp_path / "none", tmp_path)


def test_what_was_not_run_alike_is_not_put_side_by_side() -> None:
    other = [replace(each, key=replace(each.key, protocol="q")) for each in episodes("K=1", "reach", 3)]
    with pytest.raises(InvalidOption, match="different protocols"):
        summarize([*episodes("K=1", "reach", 3), *other])
    with pytest.raises(InvalidOption, match="different protocols"):
        comparison_table(episodes("K=1", "reach", 3), other)
    with pytest.raises(InvalidOption, match="share no initial conditions"):
        comparison_table(episodes("K=1", "reach", 3), episodes("K=1", "push", 3))
