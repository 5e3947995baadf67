"""table-overall: success over the tasks of all benchmarks that table-sim was run in (Fig. 1, right)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import mean

from oat.evaluation.records import EpisodeRecord
from oat.evaluation.statistics import success_rate
from oat.evaluation.summaries import join_stand_ins, note_stand_ins
from oat.experiments import simulation
from oat.experiments.paper import numbers as paper
from oat.experiments.paper.claims import SUCCESS
from oat.experiments.study.runs import commit
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import Row, absences, decide, not_run, read_rows
from oat.tables.interval import count_nouns
from oat.tables.success import POOLED, Rate, SuccessRow, overall_columns, success_table
from oat.tables.table import Table

NAME = "table-overall"
EASIER = ("libero_90",)
"""What stands beside a benchmark of the paper's in which all methods are at the floor: single steps of its tasks."""
BENCHMARKS = (*paper.AVERAGE, *EASIER)
"""The benchmarks over whose tasks success is pooled: the paper's first."""


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return nothing to run: the table is made of what table-sim has run in each benchmark, side by side in OUT."""
    return []


def tables(study: Study) -> list[Table]:
    """Return a row for each method: its success in every benchmark, and over the tasks of all of them."""
    studies = [replace(study, sim=name, folder=study.folder.parent / name) for name in BENCHMARKS]
    found = {each.sim: read_rows(each, simulation.evaluations(each)) for each in studies}
    shown = [name for name, rows in found.items() if any(row.records for row in rows)]
    labels = list(dict.fromkeys(row.label for rows in found.values() for row in rows))
    by_label = {label: {name: row for name in shown for row in found[name] if row.label == label} for label in labels}
    tasks = {each.sim: each.tasks for each in studies if each.sim in shown}
    cells = [_cells(label, rows) for label, rows in by_label.items()]
    notes = (*_about(study, tasks, found), *_decide(by_label))
    return [success_table(f"{NAME}: success in %", cells, overall_columns(shown), notes)]


def _cells(label: str, rows: Mapping[str, Row]) -> SuccessRow:
    """Return a method's success in each benchmark, and over all tasks if it was run in all of these benchmarks."""
    rates = {name: row.overall.rate for name, row in rows.items() if row.overall is not None}
    if rates and len(rates) == len(rows):
        rates[POOLED] = _rate([record for row in rows.values() for record in row.records])
    numbers = [found[label] for name in rows for found in paper.PER_TASK.get(name, {}).values() if label in found]
    return SuccessRow(label, rates, published=f"{mean(numbers):.1f}" if numbers else None)


def _rate(records: Sequence[EpisodeRecord]) -> Rate:
    """Return the success over all tasks, each counting alike, whichever benchmark it belongs to."""
    tasks = [record.key.task for record in records]
    conditions = [(record.key.task, record.key.condition) for record in records]
    outcomes = [record.success for record in records]
    return Rate(success_rate(outcomes, conditions, tasks), len(records), sum(outcomes))


def _about(study: Study, tasks: Mapping[str, Sequence[str]], found: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Yield what is pooled, and what is missing."""
    yield f"scale {study.scale.name}; minutes, steps and seeds are in each benchmark's table-sim; at commit {commit()}"
    if tasks:
        counted = ", ".join(f"{count_nouns(len(each), 'task')} of {name}" for name, each in tasks.items())
        yield f"overall: {counted}, each task counting alike"
    lacking = [name for name in found if name not in (*tasks, *EASIER)]
    lacking += [f"{name}: {', '.join(told)}" for name in tasks if (told := absences(found[name]))]
    yield from not_run(lacking)
    assets = {name: join_stand_ins(record for row in found[name] for record in row.records) for name in tasks}
    yield from note_stand_ins(", ".join(f"{each} of {name}" for name, each in assets.items() if each))
    own = [name for name in tasks if name not in EASIER]
    yield f"paper: the mean over its tasks of {' and '.join(own) or 'its benchmarks'}"


def _decide(by_label: Mapping[str, Mapping[str, Row]]) -> Iterator[str]:
    """Yield whether the paper's claims hold over the conditions of all benchmarks."""
    pooled = [
        Row(label, tuple(record for row in rows.values() for record in row.records), "")
        for label, rows in by_label.items()
        if rows and all(row.records for row in rows.values())
    ]
    for claim, chain in SUCCESS:
        yield decide(claim, chain, pooled, alike=False)  # each benchmark has its own protocol
