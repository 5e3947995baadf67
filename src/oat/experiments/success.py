"""Success tables: every row a method at a number of tokens, with intervals and with the paper's number beside it."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oat.evaluation.records import EpisodeRecord
from oat.evaluation.tables import POOLED, Summary, compare_policies, summarize
from oat.experiments.claims import Claim, decide_claim
from oat.experiments.study import Evaluation, Study
from oat.report.sheet import Sheet

NONE = "—"
_FEW = 30  # episodes per task; below, intervals are too wide for any claim


@dataclass(frozen=True)
class Row:
    """A line of a table: all records of a method at one number of tokens, over all its training seeds."""

    label: str
    records: tuple[EpisodeRecord, ...]
    steps: str
    """Training steps of tokenizer and policy."""

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
    rows: dict[str, list[EpisodeRecord]] = {}
    steps: dict[str, str] = {}
    for evaluation in evaluations:
        method = evaluation.method
        found = study.records(evaluation)
        for tokens in method.prefixes or (None,):
            label = method.label(tokens)
            rows.setdefault(label, []).extend(found.get(tokens, ()))
            steps.setdefault(label, training_steps(study, evaluation))
    return [Row(label, tuple(records), steps[label]) for label, records in rows.items()]


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
) -> Sheet:
    """Success in percent on every task and on average, the paper's average beside it, and what of its claims holds."""
    tasks, known = study.tasks, paper or {}
    columns = ("policy", "steps", *tasks, *(("average", "95 %") if len(tasks) > 1 else ("95 %",)), "± seeds")
    cells = [(row.label, row.steps, *_cells(row, tasks), _paper(known.get(row.label))) for row in rows]
    notes = (*_circumstances(study, rows), *(decide(claim, chain, rows) for claim, chain in claims))
    return Sheet(title, (*columns, "paper"), tuple(cells), notes)


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
    yield f"scale {scale.name}, preset {scale.preset}, {study.sim}, state observations, commit {commit()}"
    if scale.minutes is not None:
        yield (
            f"every method was trained for {scale.minutes:g} minutes on one thread, of which a learned tokenizer took "
            f"{scale.tokenizer_minutes:g}; steps: of the tokenizer + of the policy"
        )


def not_run(absent: Sequence[str]) -> tuple[str, ...]:
    """The note that says what is missing, if anything is."""
    return (f"not run: {', '.join(absent)}",) if absent else ()


def _circumstances(study: Study, rows: Sequence[Row]) -> Iterator[str]:
    yield from circumstances(study)
    yield from not_run([row.label for row in rows if not row.records])
    counts = sorted({(len(row.records) // len(study.tasks), _seeds(row)) for row in rows if row.records})
    for episodes, seeds in counts:
        labels = ", ".join(
            r.label for r in rows if r.records and (len(r.records) // len(study.tasks), _seeds(r)) == (episodes, seeds)
        )
        few = "; too few for any claim" * (episodes < _FEW)
        yield f"{labels}: {episodes} episodes per task from {seeds} training seed{'s' * (seeds > 1)}{few}"
    for row in rows:
        overall = row.overall
        if overall is not None and overall.failed_decodes:
            yield f"{row.label}: {overall.failed_decodes:.1%} of its chunks did not decode; the robot held still then"
        if overall is not None and overall.crashes:
            yield f"{row.label}: the simulator died in {len(overall.crashes)} episodes"
    sources = sorted({record.data_source for row in rows for record in row.records})
    if sources:
        yield f"{' and '.join(sources)} demonstrations; the paper's policies see images, trained for longer, 5 seeds"


def _seeds(row: Row) -> int:
    return len({record.key.training_seed for record in row.records})


def decide(claim: str, chain: Sequence[str], rows: Sequence[Row]) -> str:
    """Whether a claim held, on the same initial conditions."""
    found = {row.label: row.records for row in rows if row.records}
    return decide_claim((claim, chain), found, lambda worse, better: compare_policies(found[worse], found[better]))


def commit() -> str:
    """Of the code that runs, where it is a checkout."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"
