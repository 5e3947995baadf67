"""Tables of a study's success: every row a method at a number of tokens, the paper's number beside it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oat.data.episodes import IMAGES
from oat.evaluation.claims import Claim, decide_claim
from oat.evaluation.comparisons import compare_policies
from oat.evaluation.config import Measure
from oat.evaluation.protocol import protocol_name
from oat.evaluation.records import EpisodeRecord
from oat.evaluation.summaries import Summary, join_stand_ins, note_stand_ins, summarize
from oat.experiments.study.runs import commit
from oat.experiments.study.study import EvaluationRun, Study
from oat.sims import find_simulator
from oat.tables.interval import NOT_AVAILABLE, count_nouns
from oat.tables.success import POOLED, TASK_BY_TASK_COLUMNS, Column, SuccessRow, study_columns, success_table
from oat.tables.table import Table

FEW = 30  # episodes of all tasks; with fewer, intervals are too wide for any claim


@dataclass(frozen=True)
class Row:
    """Hold what a row is made of: all whole evaluations of a method at one number of tokens, over training seeds."""

    label: str
    records: tuple[EpisodeRecord, ...]
    steps: str
    """Training steps of tokenizer and policy."""
    absent: dict[int, int] = field(default_factory=dict)
    """Training seeds whose evaluation is not whole, and how many episodes there are of it; the row leaves them out."""
    commits: frozenset[str] = frozenset()
    """Commits of the code that evaluated, where that was noted."""
    minutes: float | None = None
    """Minutes of training, if not the study's."""
    milliseconds: float | None = None
    """What a chunk takes at batch 1, where it was timed."""

    @property
    def summaries(self) -> dict[str, Summary]:
        """Return the summaries by task, and under `POOLED` of all of them; none where nothing was run."""
        return {each.task: each for each in summarize(self.records)} if self.records else {}

    @property
    def overall(self) -> Summary | None:
        """Return the summary of all tasks, or of the only one."""
        found = self.summaries
        return found.get(POOLED) or next(iter(found.values()), None)

    @property
    def training_seeds(self) -> int:
        """Return how many trainings the episodes come from."""
        return len({record.key.training_seed for record in self.records})


def read_rows(study: Study, evaluations: Sequence[EvaluationRun]) -> list[Row]:
    """Return a row for each method and number of tokens, in the order given; without records where none were made."""
    rows: dict[str, Row] = {}
    for evaluation in evaluations:
        method = evaluation.method
        found = study.records(evaluation)
        for tokens in method.prefixes or (None,):
            label = method.label(tokens)
            row = rows.setdefault(label, Row(label, (), training_steps(study, evaluation), minutes=method.minutes))
            rows[label] = with_seed(row, study, evaluation, tuple(found.get(tokens, ())))
    return list(rows.values())


def with_seed(row: Row, study: Study, evaluation: EvaluationRun, episodes: tuple[EpisodeRecord, ...]) -> Row:
    """Return the row with one more training seed, if all tasks were run to the end."""
    counts = Counter(record.key.task for record in episodes)
    if any(counts[task] < study.episodes for task in study.tasks):
        return replace(row, absent={**row.absent, evaluation.seed: len(episodes)})
    made_at = study.commit(evaluation)
    commits = row.commits if made_at is None else row.commits | {made_at}
    return replace(row, records=(*row.records, *episodes), commits=commits)


def training_steps(study: Study, evaluation: EvaluationRun) -> str:
    """Return the training steps of the tokenizer, where it is trained, and of the policy."""
    method = evaluation.method
    runs = [study.policy(method, evaluation.seed, None)]
    if method.learned_tokenizer:
        runs.insert(0, study.tokenizer(method, evaluation.seed, None))
    return " + ".join(f"{run.steps:,}" for run in runs if run.steps) or NOT_AVAILABLE


def study_table(
    study: Study,
    title: str,
    rows: Sequence[Row],
    paper: Mapping[str, tuple[float, float]] | None = None,
    claims: Sequence[Claim] = (),
    *,
    alike: bool = True,
    more: Sequence[Column] = (),
) -> Table:
    """Return success in percent on every task and on average, the paper's average, and what of its claims holds.

    Rows that are not alike differ in their protocols on purpose, such as in the actions that are executed.
    """
    tasks = study.tasks
    cells = [_success_row(row, (paper or {}).get(row.label)) for row in rows]
    decided = (decide(claim, chain, rows, alike=alike) for claim, chain in claims)
    told = circumstances(study, [row.minutes for row in rows])
    notes = (*told, *_about(study, rows), *_ways(rows, alike=alike), *decided)
    return success_table(title, cells, (*study_columns(tasks), *more), notes)


def _success_row(row: Row, published: tuple[float, float] | None) -> SuccessRow:
    return SuccessRow(
        row.label,
        {task: summary.rate for task, summary in row.summaries.items()},
        spread=None if row.overall is None else row.overall.over_seeds,
        score=None if row.overall is None else row.overall.score,
        tokens_per_chunk=None if row.overall is None else row.overall.tokens_per_chunk,
        jump=None if row.overall is None else row.overall.jump,
        inference_ms=row.milliseconds,
        training_steps=row.steps,
        published=None if published is None else f"{published[0]} ± {published[1]}",
    )


def task_table(study: Study, title: str, rows: Sequence[Row], paper: Mapping[str, Mapping[str, float]]) -> Table:
    """Return every policy on every task, the paper's number beside it."""
    found = {row.label: row.summaries for row in rows}
    cells = [
        SuccessRow(
            row.label,
            {task: found[row.label][task].rate} if task in found[row.label] else {},
            task,
            published=_published(paper.get(task, {}).get(row.label)),
        )
        for task in study.tasks
        for row in rows
    ]
    notes = (*circumstances(study), *_about(study, rows))
    return success_table(title, cells, TASK_BY_TASK_COLUMNS, notes)


def _published(success: float | None) -> str | None:
    return None if success is None else str(success)


def circumstances(study: Study, minutes: Iterable[float | None] = (None,)) -> Iterator[str]:
    """Yield the notes that every table of a study needs: its scale, and for how many minutes methods were trained.

    None stands for the study's own minutes.
    """
    scale = study.scale
    seen = ", ".join(study.observe) or "state observations"
    yield f"scale {scale.name}, preset {scale.preset}, {study.sim}, {seen}; printed at commit {commit()}"
    if study.decoding != "usual":
        yield f"policies over tokens act by --decoding {study.decoding}"
    trained = {study.minutes if each is None else each for each in minutes}
    known = sorted(each for each in trained if each is not None)
    if known:
        allowed = ", ".join(f"{each:g}" for each in known)
        taken = ", ".join(f"{scale.tokenizer_share * each:.3g}" for each in known)
        yield (
            f"steps (tokenizer + policy): what {allowed} minutes of one thread allow at the measured pace, of which a "
            f"learned tokenizer takes {taken}; an ablation that computes as OAT takes OAT's"
        )


def not_run(absent: Sequence[str]) -> tuple[str, ...]:
    """Return the note that says what is missing, if anything is."""
    return (f"not run: {', '.join(absent)}",) if absent else ()


def absences(rows: Iterable[Row]) -> list[str]:
    """Return what rows lack: everything, or training seeds, or the rest of an evaluation that was begun."""
    told = []
    lacking: dict[tuple[int, ...], list[str]] = {}
    for row in rows:
        if not row.records and not any(row.absent.values()):
            told.append(row.label)
            continue
        begun = {seed: episodes for seed, episodes in row.absent.items() if episodes}
        told += [f"{row.label} seed {seed} (only {count} episodes, left out)" for seed, count in begun.items()]
        if unseen := tuple(seed for seed in row.absent if seed not in begun):
            lacking.setdefault(unseen, []).append(row.label)
    for seeds, labels in lacking.items():
        plural = "s" if len(seeds) > 1 else ""
        told.append(f"seed{plural} {' and '.join(map(str, seeds))} of {', '.join(labels)}")
    return told


def _about(study: Study, rows: Sequence[Row]) -> Iterator[str]:
    """Yield notes on how many episodes and seeds there are, and what went wrong in them."""
    tasks = len(study.tasks)
    yield from not_run(absences(rows))
    groups: dict[tuple[int, int], list[str]] = {}
    for row in rows:
        if row.records:
            groups.setdefault((len(row.records) // tasks, row.training_seeds), []).append(row.label)
    for (episodes, seeds), labels in sorted(groups.items()):
        few = "; too few for any claim" if episodes * tasks < FEW else ""
        yield f"{', '.join(labels)}: {episodes} episodes per task from {count_nouns(seeds, 'training seed')}{few}"
    for row in rows:
        yield from _problems(row)
    if groups:
        between = "; ± seeds: between trainings" if any(row.training_seeds > 1 for row in rows) else ""
        yield f"95 % and p: over initial conditions, for these policies as trained{between}"
        commits = sorted({each for row in rows for each in row.commits}) or ["unknown"]
        simulator = find_simulator(study.sim)
        sources = sorted({simulator.who_demonstrated(record.demonstrator) for row in rows for record in row.records})
        yield f"evaluated at commit {' and '.join(commits)}, {' and '.join(sources)} demonstrations"
        yield from note_stand_ins(join_stand_ins(record for row in rows for record in row.records))
        images = "" if any(key.startswith(IMAGES) for key in study.observe) else "see images and "
        yield f"the paper's policies {images}were trained for longer, with 5 seeds"


def _problems(row: Row) -> Iterator[str]:
    overall = row.overall
    if overall is not None and overall.failed_decodes:
        yield f"{row.label}: {overall.failed_decodes:.1%} of its chunks did not decode; the robot held still then"
    if overall is not None and overall.crashes:
        yield f"{row.label}: the simulator died in {len(overall.crashes)} episodes"


def _ways(rows: Sequence[Row], *, alike: bool) -> Iterator[str]:
    """Yield a note on the protocol of each row, where they were not made alike."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        for way in sorted({f"{protocol_name(r.key.protocol)} on {r.key.split} conditions" for r in row.records}):
            groups.setdefault(way, []).append(row.label)
    if len(groups) > 1:
        told = "; ".join(f"{way}: {', '.join(labels)}" for way, labels in groups.items())
        yield f"protocols{'' if alike else ', which differ on purpose'}: {told}"


def deciding_measure(rows: Iterable[Row]) -> Measure:
    """Return what decides claims: the score where the benchmark has one that is finer than success."""
    scored = any(record.best_score != record.success for row in rows for record in row.records)
    return "score" if scored else "success"


def decide(claim: str, chain: Sequence[str], rows: Sequence[Row], *, alike: bool = True) -> str:
    """Return whether a claim held, on the initial conditions that both sides met."""
    found = {row.label: row for row in rows if row.records}
    few = [label for label in chain if label in found and len(found[label].records) < FEW]
    if few:
        return f"claim: {claim}: undecided, too few episodes of {', '.join(few)}"
    measure = deciding_measure(found.values())
    decided = decide_claim(
        (claim, chain),
        found,
        lambda worse, better: compare_policies(
            found[worse].records, found[better].records, same_protocol=alike, measure=measure
        ),
    )
    decided += " by score" if measure == "score" else ""
    # A difference between policies that were trained once may be one between trainings.
    once = [label for label in chain if label in found and found[label].training_seeds == 1]
    return f"{decided}; trained once: {', '.join(once)}" if once else decided
