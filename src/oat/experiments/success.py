"""Success tables: every row a method at a number of tokens, with intervals and with the paper's number beside it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from oat.evaluation.protocol import protocol_name
from oat.evaluation.records import EpisodeRecord
from oat.evaluation.tables import POOLED, Summary, compare_policies, percent, summarize
from oat.experiments.paper.claims import Claim, decide_claim
from oat.experiments.study.runs import commit
from oat.experiments.study.study import Evaluation, Study
from oat.tables.table import Sheet

NONE = "—"
_FEW = 30  # episodes per task; below, intervals are too wide for any claim


@dataclass(frozen=True)
class Row:
    """A line of a table: all whole evaluations of a method at one number of tokens, over its training seeds."""

    label: str
    records: tuple[EpisodeRecord, ...]
    steps: str
    """Training steps of tokenizer and policy."""
    absent: dict[int, int] = field(default_factory=dict)
    """Training seeds whose evaluation is not whole, and how many episodes there are of it; the row leaves them out."""
    commits: frozenset[str] = frozenset()
    """Of the code that evaluated, where that was noted."""

    @property
    def summaries(self) -> dict[str, Summary]:
        """By task."""
        return {each.task: each for each in summarize(self.records)} if self.records else {}

    @property
    def overall(self) -> Summary | None:
        found = self.summaries
        return found.get(POOLED) or next(iter(found.values()), None)


def read_rows(study: Study, evaluations: Sequence[Evaluation]) -> list[Row]:
    """One row for each method and number of tokens, in the order given; without records where none were made."""
    rows: dict[str, Row] = {}
    for evaluation in evaluations:
        method, found = evaluation.method, study.records(evaluation)
        for tokens in method.prefixes or (None,):
            label, episodes = method.label(tokens), tuple(found.get(tokens, ()))
            row = rows.setdefault(label, Row(label, (), training_steps(study, evaluation)))
            rows[label] = _with(row, study, evaluation, episodes)
    return list(rows.values())


def _with(row: Row, study: Study, evaluation: Evaluation, episodes: tuple[EpisodeRecord, ...]) -> Row:
    """The row and one more training seed, if all tasks were run to the end."""
    counts = Counter(record.key.task for record in episodes)
    if any(counts[task] < study.scale.episodes for task in study.tasks):
        return replace(row, absent={**row.absent, evaluation.seed: len(episodes)})
    commits = row.commits | {made} if (made := study.commit(evaluation)) else row.commits
    return replace(row, records=(*row.records, *episodes), commits=commits)


def training_steps(study: Study, evaluation: Evaluation) -> str:
    """Of the tokenizer, where it is trained, and of the policy."""
    method, seed = evaluation.method, evaluation.seed
    runs = [study.policy(method, seed, None)]
    if method.learned_tokenizer:
        runs.insert(0, study.tokenizer(method, seed, None))
    return " + ".join(f"{run.steps:,}" for run in runs if run.steps) or NONE


def success_sheet(
    study: Study,
    title: str,
    rows: Sequence[Row],
    paper: Mapping[str, tuple[float, float]] | None = None,
    claims: Sequence[Claim] = (),
    *,
    alike: bool = True,
) -> Sheet:
    """Success in percent on every task and on average, the paper's average beside it, and what of its claims holds.

    Rows that are not alike differ in their protocols on purpose, such as in the actions that are executed.
    """
    tasks, known = study.tasks, paper or {}
    columns = ("policy", "steps", *tasks, *(("average", "95 %") if len(tasks) > 1 else ("95 %",)), "± seeds")
    cells = [(row.label, row.steps, *_cells(row, tasks), _paper(known.get(row.label))) for row in rows]
    decided = (decide(claim, chain, rows, len(tasks), alike=alike) for claim, chain in claims)
    notes = (*circumstances(study), *_about(rows, len(tasks)), *_ways(rows, alike=alike), *decided)
    return _without_empty(Sheet(title, (*columns, "paper"), tuple(cells), notes), "± seeds", "paper")


def per_task_sheet(study: Study, title: str, rows: Sequence[Row], paper: Mapping[str, Mapping[str, float]]) -> Sheet:
    """Every policy on every task, the paper's number beside it."""
    cells = tuple(
        (
            *(task, row.label),
            *(percent(row.summaries[task].success) if task in row.summaries else (NONE, NONE)),
            str(paper.get(task, {}).get(row.label, NONE)),
        )
        for task in study.tasks
        for row in rows
    )
    notes = (*circumstances(study), *_about(rows, len(study.tasks)))
    return _without_empty(Sheet(title, ("task", "policy", "success %", "95 %", "paper"), cells, notes), "paper")


def _without_empty(sheet: Sheet, *names: str) -> Sheet:
    """Without those of these columns that no row has anything in."""
    filled = [
        column not in names or any(row[at] != NONE for row in sheet.rows) for at, column in enumerate(sheet.columns)
    ]
    kept = [tuple(compress(cells, filled)) for cells in (sheet.columns, *sheet.rows)]
    return replace(sheet, columns=kept[0], rows=tuple(kept[1:]))


def _cells(row: Row, tasks: Sequence[str]) -> Iterator[str]:
    overall, found = row.overall, row.summaries
    yield from (f"{100 * found[task].success.estimate:.1f}" if task in found else NONE for task in tasks)
    if overall is None:
        yield from (NONE,) * (3 if len(tasks) > 1 else 2)
        return
    if len(tasks) > 1:
        yield f"{100 * overall.success.estimate:.1f}"
    yield f"{100 * overall.success.low:.0f} … {100 * overall.success.high:.0f}"
    spread = overall.over_seeds
    yield f"{100 * spread.error:.1f} ({spread.seeds})" if spread.of == "training" and spread.seeds > 1 else NONE


def _paper(success: tuple[float, float] | None) -> str:
    return NONE if success is None else f"{success[0]} ± {success[1]}"


def circumstances(study: Study) -> Iterator[str]:
    """What any number of a study must be read with."""
    scale = study.scale
    yield f"scale {scale.name}, preset {scale.preset}, {study.sim}, state observations; printed at commit {commit()}"
    if scale.minutes is not None:
        yield (
            f"steps (tokenizer + policy): what {scale.minutes:g} minutes of one thread allow at the measured pace, of "
            f"which a learned tokenizer takes {scale.tokenizer_minutes:g}; an ablation that computes as OAT takes OAT's"
        )


def not_run(absent: Sequence[str]) -> tuple[str, ...]:
    """The note that says what is missing, if anything is."""
    return (f"not run: {', '.join(absent)}",) if absent else ()


def absences(rows: Iterable[Row]) -> list[str]:
    """What rows lack: everything, or training seeds, or the rest of an evaluation that was begun."""
    told = []
    for row in rows:
        if not row.records and not any(row.absent.values()):
            told.append(row.label)
            continue
        for seed, episodes in row.absent.items():
            told.append(f"{row.label} seed {seed}" + f" (only {episodes} episodes, left out)" * (episodes > 0))
    return told


def _about(rows: Sequence[Row], tasks: int) -> Iterator[str]:
    """Episodes, seeds and what went wrong in them."""
    yield from not_run(absences(rows))
    groups: dict[tuple[int, int], list[str]] = {}
    for row in rows:
        if row.records:
            groups.setdefault((len(row.records) // tasks, _seeds(row)), []).append(row.label)
    for (episodes, seeds), labels in sorted(groups.items()):
        few = "; too few for any claim" * (episodes < _FEW)
        told = f"{episodes} episodes per task from {seeds} training seed{'s' * (seeds > 1)}"
        yield f"{', '.join(labels)}: {told}{few}"
    for row in rows:
        overall = row.overall
        if overall is not None and overall.failed_decodes:
            yield f"{row.label}: {overall.failed_decodes:.1%} of its chunks did not decode; the robot held still then"
        if overall is not None and overall.crashes:
            yield f"{row.label}: the simulator died in {len(overall.crashes)} episodes"
    if groups:
        between = "; ± seeds: between trainings" if any(_seeds(row) > 1 for row in rows) else ""
        yield f"95 % and p: over initial conditions, for these policies as trained{between}"
        commits = sorted({each for row in rows for each in row.commits}) or ["unknown"]
        sources = sorted({record.data_source for row in rows for record in row.records})
        yield f"evaluated at commit {' and '.join(commits)}, {' and '.join(sources)} demonstrations"
        yield "the paper's policies see images and were trained for longer, with 5 seeds"


def _ways(rows: Sequence[Row], *, alike: bool) -> Iterator[str]:
    """Where rows were not made alike: by which protocol each was."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        for way in sorted({f"{protocol_name(r.key.protocol)} on {r.key.split} conditions" for r in row.records}):
            groups.setdefault(way, []).append(row.label)
    if len(groups) > 1:
        told = "; ".join(f"{way}: {', '.join(labels)}" for way, labels in groups.items())
        yield f"protocols{'' if alike else ', which differ on purpose'}: {told}"


def _seeds(row: Row) -> int:
    return len({record.key.training_seed for record in row.records})


def decide(claim: str, chain: Sequence[str], rows: Sequence[Row], tasks: int, *, alike: bool = True) -> str:
    """Whether a claim held, on the initial conditions that both sides met."""
    found = {row.label: row for row in rows if row.records}
    few = [label for label in chain if label in found and len(found[label].records) < _FEW * tasks]
    if few:
        return f"claim: {claim}: undecided, too few episodes of {', '.join(few)}"
    once = [label for label in chain if label in found and _seeds(found[label]) == 1]
    trained = f"; trained once: {', '.join(once)}" if once else ""
    decided = decide_claim(
        (claim, chain),
        found,
        lambda worse, better: compare_policies(found[worse].records, found[better].records, same_protocol=alike),
    )
    return decided + trained
