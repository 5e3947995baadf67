"""The table of success shows what its rows know, and leaves out what none of them does."""

from oat.tables.interval import Interval, format_percent, format_range
from oat.tables.success import (
    EVALUATION_COLUMNS,
    POOLED,
    TASK_BY_TASK_COLUMNS,
    Column,
    Rate,
    Spread,
    SuccessRow,
    page_columns,
    study_columns,
    success_table,
    trial_columns,
)

HALF = Rate(Interval(0.5, 0.304, 0.696), 20, 10)
NEVER = Rate(Interval(0.0, 0.0, 0.161), 20, 0)
POOLED_RATE = Rate(Interval(0.25, 0.142, 0.402), 40, 10)
WHOLE = SuccessRow("OAT_8", {"lift": HALF, "can": NEVER, POOLED: POOLED_RATE}, training_steps="800")
MISSING = SuccessRow("DP")


def test_tasks_side_by_side_with_their_average() -> None:
    table = success_table("t", [WHOLE, MISSING], study_columns(("lift", "can")), ("a note",))
    assert table.columns == ("policy", "steps", "lift", "can", "average", "95 %")
    assert table.rows == (("OAT_8", "800", "50.0", "0.0", "25.0", "14 … 40"), ("DP", *5 * ("—",)))
    assert table.notes == ("a note",)


def test_one_task_is_its_own_average() -> None:
    table = success_table("t", [SuccessRow("OAT_8", {"lift": HALF})], study_columns(("lift",)))
    assert table.columns == ("policy", "steps", "lift", "95 %")
    assert table.rows == (("OAT_8", "—", "50.0", "30 … 70"),)


def test_optional_columns_are_there_as_soon_as_one_row_needs_them() -> None:
    trained = SuccessRow("OAT_8", {"lift": HALF}, spread=Spread(0.5, 0.031, 3, "training"), published="73.1 ± 0.5")
    evaluated = SuccessRow("DP", {"lift": HALF}, spread=Spread(0.5, 0.02, 2, "evaluation"))
    table = success_table("t", [trained, evaluated], study_columns(("lift",)))
    assert table.columns[-2:] == ("± seeds", "paper")
    assert [row[-2:] for row in table.rows] == [("3.1 (3)", "73.1 ± 0.5"), ("—", "—")]
    assert success_table("t", [evaluated], EVALUATION_COLUMNS).columns[5] == "±"
    assert "score" not in success_table("t", [evaluated], EVALUATION_COLUMNS).columns


def test_every_layout_writes_an_interval_alike() -> None:
    row = SuccessRow("OAT_8", {"lift": HALF}, "lift")
    for columns in (EVALUATION_COLUMNS, TASK_BY_TASK_COLUMNS, page_columns(("lift",)), trial_columns(("lift",))):
        table = success_table("t", [row], columns)
        assert table.rows[0][table.columns.index("95 %")] == "30 … 70"


def test_trials_are_counted() -> None:
    table = success_table("t", [WHOLE], trial_columns(("lift", "can")))
    assert table.columns == ("policy", "lift", "95 %", "can", "95 %", "all tasks", "95 %", "held still")
    assert table.rows == (("OAT_8", "10 / 20", "30 … 70", "0 / 20", "0 … 16", "10 / 40", "14 … 40", "—"),)


def test_a_new_column_is_one_value() -> None:
    def count_failures(row: SuccessRow) -> str | None:
        return None if row.overall is None else str(row.overall.episodes - row.overall.successes)

    failures = Column("failures", count_failures)
    assert success_table("t", [WHOLE, MISSING], (*EVALUATION_COLUMNS[:1], failures)).rows == (
        ("OAT_8", "30"),
        ("DP", "—"),
    )


def test_numbers_have_a_true_minus_sign() -> None:
    assert format_percent(-0.25, "+.1f") == "−25.0"
    assert format_range(Interval(1, 0.95, 1.05), ".2f") == "0.95 … 1.05"
