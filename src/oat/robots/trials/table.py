"""A series of trials as a table: successes with intervals, the paper's beside them, and what of its claims holds."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oat.evaluation.statistics import PairedComparison, compare_paired, wilson
from oat.experiments.paper import numbers as paper
from oat.experiments.paper.claims import BETTER_THAN_RIVALS, MONOTONE, decide_claim
from oat.robots.trials.log import SIMULATOR, TrialLog, TrialRecord
from oat.tables.table import Sheet

NONE = "—"


@dataclass(frozen=True)
class _Row:
    """A method, and its trials that count."""

    method: str
    records: tuple[TrialRecord, ...]

    def cells(self, task: str | None = None) -> tuple[str, str]:
        """Successes of trials and their interval, for a task or for all."""
        chosen = [record for record in self.records if task in (None, record.trial.task)]
        if not chosen:
            return NONE, NONE
        successes = sum(record.verdict == "success" for record in chosen)
        interval = wilson(successes, len(chosen))
        return f"{successes} / {len(chosen)}", f"{100 * interval.low:.0f} … {100 * interval.high:.0f}"

    @property
    def held_still(self) -> str:
        """How much of the time the robot waited for an action."""
        holds, steps = (sum(getattr(record, name) for record in self.records) for name in ("holds", "steps"))
        return f"{holds / (holds + steps):.0%}" if holds + steps else NONE

    @property
    def outcomes(self) -> dict[tuple[str, int], bool]:
        """By task and block."""
        return {(each.trial.task, each.trial.block): each.verdict == "success" for each in self.records}


def trial_sheets(sheet: TrialLog) -> list[Sheet]:
    """The table, and the judges' remarks if there are any."""
    plan, judged = sheet.plan, sheet.judged.values()
    found = {method: list[TrialRecord]() for method in plan.methods}
    for record in judged:
        found[plan.method(record.trial)].append(record)
    rows = [_Row(method, tuple(records)) for method, records in found.items()]
    several = len(plan.tasks) > 1
    tasks = (*plan.tasks, *(("all tasks",) if several else ()))
    columns = ("policy", *(column for task in tasks for column in (task, "95 %")), "held still")
    cells = [(row.method, *_success(row, plan.tasks, several), row.held_still, published(row.method)) for row in rows]
    title = f"table-real: trials of {_robot(sheet)}, successes / trials"
    table = Sheet(title, (*columns, paper_column()), tuple(cells), tuple(_notes(sheet, rows)))
    return [table, *_remarks(sheet)]


def paper_column() -> str:
    return f"paper: {', '.join(paper.REAL)}"


def published(method: str) -> str:
    """The paper's successes at its two tasks."""
    found = [successes[method] for successes in paper.REAL.values() if method in successes]
    return ", ".join(f"{number} / {paper.REAL_TRIALS}" for number in found) or NONE


def _success(row: _Row, tasks: Sequence[str], several: bool) -> Iterator[str]:
    for task in (*tasks, *((None,) if several else ())):
        yield from row.cells(task)


def _robot(sheet: TrialLog) -> str:
    """What acted, as far as the judges tell."""
    return "a simulated robot" if SIMULATOR in {record.judge for record in sheet.records} else "a robot"


def _notes(sheet: TrialLog, rows: Sequence[_Row]) -> Iterator[str]:
    plan, driving = sheet.plan, sheet.plan.driving
    judges = " and ".join(sorted({record.judge for record in sheet.records}))
    yield f"robot {plan.robot}, judged blind by the {judges}; order drawn from seed {plan.seed}"
    if SIMULATOR in judges:
        yield "no real robot was moved, and no person judged: this rehearses the protocol"
    else:
        yield f"{driving.fps:g} actions per second, {driving.execute} of each chunk, at most {driving.seconds:g} s"
    missing, total, blind = len(sheet.remaining), len(plan.order()), sheet.judged_when_revealed
    if missing:
        yield f"{missing} of {total} trials are missing"
    if blind is not None:
        yield f"the methods were revealed after {blind} of {total} trials; those after it were not blind"
    voids = Counter(plan.method(each.trial) for each in sheet.records if each.verdict == "void")
    if voids:
        yield f"void and repeated: {', '.join(f'{method} {times}' for method, times in voids.items())}"
    for row in rows:
        if undecodable := sum(record.undecodable for record in row.records):
            yield f"{row.method}: the tokens of {undecodable} chunks did not decode; others were asked for meanwhile"
        if discarded := sum(record.discarded for record in row.records):
            yield f"{row.method}: {discarded} chunks came too late to be executed, after {driving.max_age:g} s or more"
    yield from _claims(rows)


def _claims(rows: Sequence[_Row]) -> Iterator[str]:
    """Those of the paper's claims that speak of these methods, decided by the blocks that are complete."""
    complete = set.intersection(*(set(row.outcomes) for row in rows))
    places = [place for place in rows[0].outcomes if place in complete]
    known = {row.method: [row.outcomes[place] for place in places] for row in rows if places}

    def compare(worse: str, better: str) -> PairedComparison:
        return compare_paired(known[worse], known[better], [task for task, _ in places])

    methods = {row.method for row in rows}
    for claim in (*BETTER_THAN_RIVALS, MONOTONE):
        if methods & set(claim[1]):
            yield decide_claim(claim, known, compare)


def _remarks(sheet: TrialLog) -> Iterator[Sheet]:
    rows = tuple(
        (sheet.plan.method(each.trial), each.trial.task, str(each.trial.block + 1), each.verdict, each.remark)
        for each in sheet.records
        if each.remark
    )
    if rows:
        yield Sheet("remarks", ("policy", "task", "block", "verdict", "remark"), rows)
