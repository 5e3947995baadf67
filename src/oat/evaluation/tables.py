"""Records of episodes as tables: success per task with intervals, and methods compared on the same conditions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from oat.errors import InvalidOption
from oat.evaluation.records import EpisodeRecord
from oat.evaluation.statistics import Interval, compare_paired, mean_and_standard_error, success_rate
from oat.report.tables import make_table

POOLED = "all tasks"


@dataclass(frozen=True)
class Summary:
    """One method with one decoding on one task, or on all of them."""

    method: str
    decoding: str
    task: str
    episodes: int
    success: Interval
    over_seeds: tuple[float, float]
    """Mean and standard error over evaluation seeds."""
    training_seeds: int
    score: float
    """Mean of each episode's best."""
    steps: float
    tokens_per_chunk: float
    failed_decodes: float
    """Share of chunks."""
    jerk: float
    inference_ms: float
    crashed: int


def summarize(records: Iterable[EpisodeRecord]) -> list[Summary]:
    """Every method, decoding and task; several tasks also together, each counting alike."""
    groups: dict[tuple[str, str, str], list[EpisodeRecord]] = defaultdict(list)
    for record in records:
        groups[record.key.method, record.key.decoding, record.key.task].append(record)
    check_one_protocol(record for group in groups.values() for record in group)
    summaries = []
    for method, decoding in dict.fromkeys(key[:2] for key in groups):
        tasks = {key[2]: group for key, group in groups.items() if key[:2] == (method, decoding)}
        summaries += [_summary(method, decoding, task, group) for task, group in tasks.items()]
        if len(tasks) > 1:
            together = [record for group in tasks.values() for record in group]
            summaries.append(_summary(method, decoding, POOLED, together))
    return summaries


def check_one_protocol(records: Iterable[EpisodeRecord]) -> None:
    """Refuse to put side by side what was not run alike."""
    protocols = {record.key.protocol for record in records}
    if len(protocols) > 1:
        raise InvalidOption(f"these records were made under different protocols ({', '.join(sorted(protocols))})")


def _summary(method: str, decoding: str, task: str, records: Sequence[EpisodeRecord]) -> Summary:
    seeds: dict[int, list[float]] = defaultdict(list)
    for record in records:
        seeds[record.evaluation_seed].append(record.success)
    chunks = max(1, sum(record.chunks for record in records))
    return Summary(
        method=method,
        decoding=decoding,
        task=task,
        episodes=len(records),
        success=success_rate(
            [record.success for record in records], [(record.key.task, record.key.condition) for record in records]
        ),
        over_seeds=mean_and_standard_error([float(np.mean(group)) for group in seeds.values()]),
        training_seeds=len({record.key.training_seed for record in records}),
        score=float(np.mean([record.best_score for record in records])),
        steps=float(np.mean([record.steps for record in records])),
        tokens_per_chunk=sum(record.tokens for record in records) / chunks,
        failed_decodes=sum(record.failed_decodes for record in records) / chunks,
        jerk=float(np.mean([record.jerk for record in records])),
        inference_ms=float(np.median([record.inference_ms_p50 for record in records])),
        crashed=sum(record.crashed for record in records),
    )


def summary_table(summaries: Sequence[Summary]) -> Table:
    """One row per method, decoding and task; what all share is in the caption."""
    scored = any(row.score != row.success.estimate for row in summaries)  # the benchmark has a finer measure
    columns = ("policy", "task", "episodes", "success", "95 %", *("score",) * scored, "steps", "tokens", "jerk", "ms")
    table = make_table("closed loop", *columns)
    for row in summaries:
        table.add_row(
            *(f"{row.method} {row.decoding}", row.task, str(row.episodes), *_percent(row.success)),
            *(f"{100 * row.score:.1f}",) * scored,
            *(f"{row.steps:.0f}", f"{row.tokens_per_chunk:.3g}", f"{row.jerk:.2g}", f"{row.inference_ms:.1f}"),
        )
    table.caption = "\n".join(_remarks(summaries))
    return table


def _percent(interval: Interval) -> tuple[str, str]:
    return f"{100 * interval.estimate:.1f}", f"{100 * interval.low:.0f} … {100 * interval.high:.0f}"


def _remarks(summaries: Sequence[Summary]) -> Iterator[str]:
    seeds = max(row.training_seeds for row in summaries)
    yield f"policies from {seeds} training seed{'s' * (seeds > 1)}; tokens and milliseconds are per chunk"
    for row in summaries:
        name, (mean, error) = f"{row.method}, {row.decoding}, {row.task}", row.over_seeds
        if not np.isnan(error):
            yield f"{name}: {100 * mean:.1f} ± {100 * error:.1f} over evaluation seeds"
        if row.failed_decodes:
            yield f"{name}: {row.failed_decodes:.1%} of the chunks did not decode"
        if row.crashed:
            yield f"{name}: the simulator died in {row.crashed} episodes"


def comparison_table(first: Sequence[EpisodeRecord], second: Sequence[EpisodeRecord]) -> Table:
    """The second against the first, on the episodes that both ran."""
    check_one_protocol([*first, *second])
    pairs = _pair(first, second)
    columns = ("task", "pairs", "first", "second", "gain", "95 %", "only 1st : 2nd", "p", "better")
    table = make_table("second against first, success in %", *columns)
    tasks = dict.fromkeys(a.key.task for a, _ in pairs)
    for task in (*tasks, *((POOLED,) if len(tasks) > 1 else ())):
        chosen = [(a, b) for a, b in pairs if task in (POOLED, a.key.task)]
        one, two = ([pair[side].success for pair in chosen] for side in (0, 1))
        found = compare_paired(one, two, [(a.key.task, a.key.condition) for a, _ in chosen])
        table.add_row(
            *(task, str(len(chosen)), f"{100 * np.mean(one):.1f}", f"{100 * np.mean(two):.1f}"),
            *_percent(found.difference),
            *(f"{found.only_first} : {found.only_second}", f"{found.p_value:.3g}", found.verdict),
        )
    return table


def _pair(first: Sequence[EpisodeRecord], second: Sequence[EpisodeRecord]) -> list[tuple[EpisodeRecord, EpisodeRecord]]:
    sides = [
        {(record.key.task, record.key.condition, record.key.repeat): record for record in records}
        for records in (first, second)
    ]
    shared = [key for key in sides[0] if key in sides[1]]
    if not shared:
        raise InvalidOption("the two sides share no initial conditions, so there is nothing to compare")
    return [(sides[0][key], sides[1][key]) for key in shared]
