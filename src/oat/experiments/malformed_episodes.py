"""Count the evaluated episodes in which a policy wrote tokens that do not decode, FAST's and OAT's side by side."""

from oat.evaluation.statistics import wilson
from oat.experiments.study.methods import FAST, OAT
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import Row, circumstances, not_run, read_rows
from oat.tables.interval import format_range
from oat.tables.table import Table

EPISODES = 500
"""Episodes that rates are given for: as many as LIBERO-10's evaluation has."""
REPORTED = (
    "reported of the official pi0-FAST checkpoint: 171 of 500 LIBERO-10 episodes with malformed decodes "
    "(openpi, issue 833)"
)
_TITLE = "figure-fast-failure: episodes with malformed decodes"
_COLUMNS = ("method", "episodes", "with a malformed decode", f"per {EPISODES} episodes", "95 %", "malformed chunks %")


def needed_evaluations() -> list[EvaluationRun]:
    """Return the evaluations whose episodes are counted."""
    return [EvaluationRun(FAST), EvaluationRun(OAT)]


def malformed_table(study: Study) -> Table:
    """Return how many episodes of FAST's and OAT's policies met a sequence that does not decode."""
    rows = read_rows(study, needed_evaluations())
    absent = [row.label for row in rows if not row.records]
    cells = tuple(_cells(row) for row in rows if row.records)
    return Table(_TITLE, _COLUMNS, cells, (REPORTED, *circumstances(study), *not_run(absent)))


def _cells(row: Row) -> tuple[str, ...]:
    malformed = sum(record.failed_decodes > 0 for record in row.records)
    rate = wilson(malformed, len(row.records))
    chunks = sum(record.chunks for record in row.records)
    share = sum(record.failed_decodes for record in row.records) / max(1, chunks)
    per_number = f"{EPISODES * rate.estimate:.0f}"
    bounds = format_range(rate, ".0f", EPISODES)
    return row.label, str(len(row.records)), str(malformed), per_number, bounds, f"{100 * share:.1f}"
