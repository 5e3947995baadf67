"""The table says what the trials say: counts, intervals, claims, and everything that was not as planned."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from oat.experiments.paper.trials import PUBLISHED_TRIALS
from oat.robots.trials.log import Revealed, TrialLog
from oat.robots.trials.table import trial_tables
from oat.tables.latex import to_latex
from oat.tables.markdown import to_markdown
from oat.tables.terminal import to_terminal
from tests.robots.trials.stage import fill, make_plan, new_log, record

EIGHT: dict[str, int | None] = {
    **{"DP": None, "Bin": None, "FAST": None, "QueST": None},
    **{f"OAT_{tokens}": tokens for tokens in (1, 2, 4, 8)},
}
TEN_OF = {number: "+" * number + "-" * (10 - number) for number in range(11)}


def _log(folder: Path, successes: dict[str, int]) -> TrialLog:
    methods = {name: EIGHT.get(name) for name in successes}
    log = new_log(folder, methods=methods, tasks=("stack cups", "pull"), trials=5)
    return fill(log, {name: TEN_OF[number] for name, number in successes.items()})


def test_successes_intervals_and_the_papers_beside_them(tmp_path: Path) -> None:
    (table,) = trial_tables(_log(tmp_path, {"DP": 3, "OAT_8": 10, "mine": 5}), PUBLISHED_TRIALS)
    paper = "paper: pick and place ball, stack cups"
    assert table.columns == ("policy", "stack cups", "95 %", "pull", "95 %", "all tasks", "95 %", "held still", paper)
    assert table.rows == (
        ("DP", "3 / 5", "23 … 88", "0 / 5", "0 … 43", "3 / 10", "11 … 60", "25%", "14 / 20, 11 / 20"),
        ("OAT_8", "5 / 5", "57 … 100", "5 / 5", "57 … 100", "10 / 10", "72 … 100", "25%", "16 / 20, 16 / 20"),
        ("mine", "5 / 5", "57 … 100", "0 / 5", "0 … 43", "5 / 10", "24 … 76", "25%", "—"),
    )
    assert "table-real: trials of a robot" in to_markdown(table)
    assert r"3 / 5 & 23 \ldots{} 88" in to_latex(table)


@pytest.mark.parametrize(
    ("successes", "monotone"), [((0, 2, 6, 10), "undecided"), ((10, 4, 4, 4), "not held"), ((0, 0, 0, 10), "undecided")]
)
def test_more_tokens(tmp_path: Path, successes: tuple[int, ...], monotone: str) -> None:
    counts = dict(zip(("OAT_1", "OAT_2", "OAT_4", "OAT_8"), successes, strict=True))
    (table,) = trial_tables(_log(tmp_path, counts), PUBLISHED_TRIALS)
    (claim,) = (note for note in table.notes if "more tokens" in note)
    assert claim.startswith(f"claim: more tokens act better: {monotone} (OAT_2 − OAT_1 = ")


def test_claims_are_held_by_pairs_of_blocks(tmp_path: Path) -> None:
    (table,) = trial_tables(_log(tmp_path, {"DP": 3, "QueST": 5, "FAST": 10, "OAT_8": 10}), PUBLISHED_TRIALS)
    notes = "\n".join(table.notes)
    assert "OAT_8 acts better than DP: held (OAT_8 − DP = +70.0 points on 10 conditions, p = 0.016)" in notes
    assert "OAT_8 acts better than QueST: undecided (OAT_8 − QueST = +50.0 points on 10 conditions, p = 0.062)" in notes
    assert "OAT_8 acts better than FAST: undecided (OAT_8 − FAST = +0.0 points on 10 conditions, p = 1)" in notes
    assert "OAT_8 acts better than Bin: undecided, Bin was not run" in notes


def test_methods_of_which_the_paper_claims_nothing(tmp_path: Path) -> None:
    (table,) = trial_tables(_log(tmp_path, {"mine": 3, "yours": 5}), PUBLISHED_TRIALS)
    assert not any("claim" in note for note in table.notes)


def test_what_was_not_as_planned_is_said(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    first, second, third, fourth = make_plan().order()[:4]
    log.append(record(first))
    log.append(record(second, "void", r"[/] bumped | the table_ \ ~"))
    log.append(Revealed("2026-01-01T00:00:00+00:00"))
    for trial in (second, third, fourth):
        log.append(record(trial))
    table, remarks = trial_tables(log, PUBLISHED_TRIALS)
    notes = "\n".join(table.notes)
    assert "14 of 18 trials are missing" in notes
    assert "revealed after 1 of 18 trials; those after it were not blind" in notes
    assert f"void and repeated: {make_plan().method(second)} 1" in notes
    assert "OAT_8 acts better than DP: undecided (" in notes  # from the only block that is complete
    assert remarks.rows == ((make_plan().method(second), "push", "1", "void", r"[/] bumped | the table_ \ ~"),)
    console = Console(width=200, record=True)
    console.print(to_terminal(remarks))
    assert r"[/] bumped | the table_ \ ~" in console.export_text()
    assert r"[/] bumped | the table\_ \textbackslash{} \textasciitilde{} \\" in to_latex(remarks)


def test_nothing_is_claimed_without_a_complete_block(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append(record(make_plan().order()[0]))
    (table,) = trial_tables(log, PUBLISHED_TRIALS)
    assert [row[1] for row in table.rows].count("—") == 2
    assert "claim: OAT_8 acts better than DP: undecided, DP, OAT_8 was not run" in table.notes


def test_tokens_per_chunk_are_shown_where_they_are_known(tmp_path: Path) -> None:
    log = new_log(tmp_path, tasks=("push",), trials=2)
    counted = {"OAT_8": [(3, 24), (5, 13)], "OAT_1": [(0, 0), (4, 4)], "DP": [(0, 0), (0, 0)]}  # 0: logs of before
    for trial in log.plan.order():
        chunks, tokens = counted[log.plan.method(trial)][trial.block]
        log.append(replace(record(trial), chunks=chunks, tokens=tokens))
    (table,) = trial_tables(log, PUBLISHED_TRIALS)
    place = table.columns.index("tokens per chunk")
    assert {row[0]: row[place] for row in table.rows} == {"DP": "—", "OAT_1": "1", "OAT_8": "4.62"}


def test_nothing_stands_beside_trials_of_which_nothing_was_published(tmp_path: Path) -> None:
    (table,) = trial_tables(_log(tmp_path, {"DP": 3, "OAT_8": 10}))
    assert table.columns[-1] == "held still"
    assert not any("claim" in note for note in table.notes)
