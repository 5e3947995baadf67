"""A series of trials as a table: successes with intervals, and what was published of the same methods beside them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from oat.evaluation.claims import Claim, decide_claim
from oat.evaluation.statistics import PairedComparison, compare_paired, wilson
from oat.robots.trials.log import SIMULATOR, TrialLog, TrialRecord
from oat.tables.success import POOLED, Rate, SuccessRow, published_column, success_table, trial_columns
from oat.tables.table import Table


@dataclass(frozen=True)
class PublishedTrials:
    """Hold what a paper reports of trials, to be shown beside ours; this layer does not know any paper."""

    heading: str
    """Of the column."""
    successes: Mapping[str, str] = field(default_factory=dict)
    """By method what its cell says."""
    claims: Sequence[Claim] = ()


@dataclass(frozen=True)
class _Method:
    """Hold a method's trials that count."""

    name: str
    records: tuple[TrialRecord, ...]

    def rates(self, tasks: Sequence[str]) -> dict[str, Rate]:
        """Return the success at each of the tasks that were tried, and at all of them where they are several."""
        groups = {task: [record for record in self.records if record.trial.task == task] for task in tasks}
        if len(tasks) > 1:
            groups[POOLED] = list(self.records)
        return {task: _rate(group) for task, group in groups.items() if group}

    @property
    def held_still(self) -> float | None:
        """Return the share of the time in which the robot waited for an action, if there was any."""
        holds = sum(record.holds for record in self.records)
        steps = sum(record.steps for record in self.records)
        return holds / (holds + steps) if holds + steps else None

    @property
    def tokens_per_chunk(self) -> float | None:
        """Return the mean tokens of a chunk over the trials of which they are known, if there are any."""
        tokens = sum(record.tokens for record in self.records)
        chunks = sum(record.chunks for record in self.records)
        return tokens / chunks if tokens else None

    @property
    def outcomes(self) -> dict[tuple[str, int], bool]:
        """Return by task and block whether the trial was a success."""
        return {(each.trial.task, each.trial.block): each.verdict == "success" for each in self.records}


def _rate(records: Sequence[TrialRecord]) -> Rate:
    successes = sum(record.verdict == "success" for record in records)
    return Rate(wilson(successes, len(records)), len(records), successes)


def trial_tables(log: TrialLog, published: PublishedTrials | None = None) -> list[Table]:
    """Return the table of success, and one of the judges' remarks if there are any."""
    plan = log.plan
    found = {method: list[TrialRecord]() for method in plan.methods}
    for record in log.judged.values():
        found[plan.method(record.trial)].append(record)
    methods = [_Method(name, tuple(records)) for name, records in found.items()]
    columns = trial_columns(plan.tasks)
    if published is not None:
        columns = (*columns, published_column(published.heading))
    rows = [
        SuccessRow(
            method.name,
            method.rates(plan.tasks),
            tokens_per_chunk=method.tokens_per_chunk,
            held_still=method.held_still,
            published=published.successes.get(method.name) if published is not None else None,
        )
        for method in methods
    ]
    claims = published.claims if published is not None else ()
    notes = (*_circumstances(log), *_problems(log, methods), *_decided(claims, methods))
    table = success_table(f"table-real: trials of {_robot(log)}, successes / trials", rows, columns, notes)
    return [table, *_remarks(log)]


def _robot(log: TrialLog) -> str:
    """Return what acted, as far as the judges tell."""
    return "a simulated robot" if SIMULATOR in {record.judge for record in log.records} else "a robot"


def _circumstances(log: TrialLog) -> Iterator[str]:
    plan = log.plan
    driving = plan.driving
    judges = " and ".join(sorted({record.judge for record in log.records}))
    yield f"robot {plan.robot}, judged blind by the {judges}; order drawn from seed {plan.seed}"
    if SIMULATOR in judges:
        yield "no real robot was moved, and no person judged: this rehearses the protocol"
    else:
        yield f"{driving.fps:g} actions per second, {driving.execute} of each chunk, at most {driving.seconds:g} s"


def _problems(log: TrialLog, methods: Sequence[_Method]) -> Iterator[str]:
    """Say what was not as planned."""
    plan = log.plan
    total = len(plan.order())
    if log.remaining:
        yield f"{len(log.remaining)} of {total} trials are missing"
    if log.judged_when_revealed is not None:
        yield (
            f"the methods were revealed after {log.judged_when_revealed} of {total} trials; "
            "those after it were not blind"
        )
    voids = Counter(plan.method(each.trial) for each in log.records if each.verdict == "void")
    if voids:
        yield f"void and repeated: {', '.join(f'{method} {times}' for method, times in voids.items())}"
    for method in methods:
        undecodable = sum(record.undecodable for record in method.records)
        if undecodable:
            yield f"{method.name}: the tokens of {undecodable} chunks did not decode; others were asked for meanwhile"
        discarded = sum(record.discarded for record in method.records)
        if discarded:
            late = f"after {plan.driving.max_age:g} s or more"
            yield f"{method.name}: {discarded} chunks came too late to be executed, {late}"


def _decided(claims: Sequence[Claim], methods: Sequence[_Method]) -> Iterator[str]:
    """Decide the claims that speak of these methods by the blocks that are complete."""
    complete = set.intersection(*(set(method.outcomes) for method in methods))
    places = [place for place in methods[0].outcomes if place in complete]
    known = {method.name: [method.outcomes[place] for place in places] for method in methods if places}

    def compare(worse: str, better: str) -> PairedComparison:
        return compare_paired(known[worse], known[better], [task for task, _ in places])

    names = {method.name for method in methods}
    for claim in claims:
        if names & set(claim[1]):
            yield decide_claim(claim, known, compare)


def _remarks(log: TrialLog) -> Iterator[Table]:
    rows = tuple(
        (log.plan.method(each.trial), each.trial.task, str(each.trial.block + 1), each.verdict, each.remark)
        for each in log.records
        if each.remark
    )
    if rows:
        yield Table("remarks", ("policy", "task", "block", "verdict", "remark"), rows)
