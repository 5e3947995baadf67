"""Records of episodes as tables: success per task with intervals, and methods compared on the same conditions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from oat.errors import InvalidOption
from oat.evaluation.records import EpisodeKey, EpisodeRecord
from oat.evaluation.statistics import (
    Interval,
    PairedComparison,
    compare_paired,
    mean_and_standard_error,
    success_rate,
)
from oat.tables.table import Sheet
from oat.tables.terminal import make_table

POOLED = "all tasks"


@dataclass(frozen=True)
class Spread:
    """The mean over seeds as papers print it."""

    mean: float
    error: float
    """The standard error; NaN for one seed."""
    seeds: int
    of: str
    """"training" where policies were trained several times, else "evaluation": groups of one policy's episodes."""


@dataclass(frozen=True)
class Summary:
    """One policy on one task, or on all of them, each counting alike."""

    policy: str
    task: str
    episodes: int
    conditions: int
    """Initial conditions that the episodes began at."""
    success: Interval
    over_seeds: Spread
    training_seeds: int
    score: float
    """Mean of each episode's best."""
    steps: float
    tokens_per_chunk: float
    failed_decodes: float
    """Share of chunks."""
    jerk: float
    inference_ms: float
    data_source: str
    crashes: tuple[str, ...]
    """What the simulator died of."""


def by_policy(records: Iterable[EpisodeRecord]) -> dict[str, list[EpisodeRecord]]:
    """Records by what tables call a policy: method and decoding, trained with any seed.

    Where several checkpoints of one training seed would go by the same name, their fingerprints tell them apart.
    """
    named: dict[str, list[EpisodeRecord]] = defaultdict(list)
    for record in records:
        named[f"{record.key.method} {record.key.decoding}"].append(record)
    policies: dict[str, list[EpisodeRecord]] = {}
    for name, group in named.items():
        checkpoints = {record.key.checkpoint for record in group}
        if len(checkpoints) == len({record.key.training_seed for record in group}):
            policies[name] = group
        else:
            for record in group:
                policies.setdefault(f"{name} {record.key.checkpoint}", []).append(record)
    return policies


def check_run_alike(keys: Iterable[EpisodeKey], *, same_protocol: bool = True) -> None:
    """Refuse to put side by side what was not run alike."""
    ways = sorted({f"protocol {key.protocol} " * same_protocol + f"on {key.split} conditions" for key in keys})
    if len(ways) > 1:
        raise InvalidOption(f"these records were not made alike: {', '.join(ways)}; keep them in different directories")


def summarize(records: Sequence[EpisodeRecord]) -> list[Summary]:
    """Every policy on every task; several tasks also together."""
    check_run_alike(record.key for record in records)
    summaries = []
    for policy, group in by_policy(records).items():
        tasks = list(dict.fromkeys(record.key.task for record in group))
        summaries += [_summary(policy, task, [r for r in group if r.key.task == task]) for task in tasks]
        if len(tasks) > 1:
            summaries.append(_summary(policy, POOLED, group))
    return summaries


def _summary(policy: str, task: str, records: Sequence[EpisodeRecord]) -> Summary:
    chunks = max(1, sum(record.chunks for record in records))
    tasks, conditions = [r.key.task for r in records], [(r.key.task, r.key.condition) for r in records]
    return Summary(
        policy=policy,
        task=task,
        episodes=len(records),
        conditions=len(set(conditions)),
        success=success_rate([record.success for record in records], conditions, tasks),
        over_seeds=_spread(records),
        training_seeds=len({record.key.training_seed for record in records}),
        score=_mean_over_tasks(tasks, [record.best_score for record in records]),
        steps=_mean_over_tasks(tasks, [record.steps for record in records]),
        tokens_per_chunk=sum(record.tokens for record in records) / chunks,
        failed_decodes=sum(record.failed_decodes for record in records) / chunks,
        jerk=_mean(record.jerk for record in records),
        inference_ms=_mean(record.inference_ms_p50 for record in records),
        data_source=" and ".join(sorted({record.data_source for record in records})),
        crashes=tuple(record.error.strip().splitlines()[-1] for record in records if record.crashed),
    )


def _spread(records: Sequence[EpisodeRecord]) -> Spread:
    several = len({record.key.training_seed for record in records}) > 1
    seeds: dict[int, list[EpisodeRecord]] = defaultdict(list)
    for record in records:
        seeds[record.key.training_seed if several else record.evaluation_seed].append(record)
    rates = [_mean_over_tasks([r.key.task for r in group], [r.success for r in group]) for group in seeds.values()]
    return Spread(*mean_and_standard_error(rates), len(rates), "training" if several else "evaluation")


def _mean_over_tasks(tasks: Sequence[str], values: Sequence[float]) -> float:
    groups: dict[str, list[float]] = defaultdict(list)
    for task, value in zip(tasks, values, strict=True):
        groups[task].append(value)
    return float(np.mean([np.mean(group) for group in groups.values()]))


def _mean(values: Iterable[float | None]) -> float:
    """Of those that there are."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")


def summary_sheet(summaries: Sequence[Summary]) -> Sheet:
    """One row per policy and task; what all share is in the notes."""
    scored = any(row.score != row.success.estimate for row in summaries)  # the benchmark has a finer measure
    spread = any(row.over_seeds.seeds > 1 for row in summaries)
    columns = (
        *("policy", "task", "n", "success", "95 %", *("±",) * spread, *("score",) * scored),
        *("steps", "tokens", "jerk", "ms"),
    )
    rows = (
        (
            *(row.policy, row.task, str(row.episodes), *percent(row.success)),
            *(f"{100 * row.over_seeds.error:.1f}",) * spread,
            *(f"{100 * row.score:.1f}",) * scored,
            *(f"{row.steps:.0f}", f"{row.tokens_per_chunk:.3g}", f"{row.jerk:.2g}", f"{row.inference_ms:.1f}"),
        )
        for row in summaries
    )
    return Sheet("closed loop", columns, tuple(rows), tuple(_remarks(summaries)))


def summary_table(summaries: Sequence[Summary]) -> Table:
    return summary_sheet(summaries).terminal()


def percent(interval: Interval) -> tuple[str, str]:
    """A rate and its interval, as tables print them."""
    return f"{100 * interval.estimate:.1f}", f"{100 * interval.low:.0f} … {100 * interval.high:.0f}"


def _remarks(summaries: Sequence[Summary]) -> Iterator[str]:
    for seeds in sorted({row.training_seeds for row in summaries}):
        policies = dict.fromkeys(row.policy for row in summaries if row.training_seeds == seeds)
        sources = " and ".join(sorted({row.data_source for row in summaries if row.training_seeds == seeds}))
        yield f"{', '.join(policies)}: from {_count(seeds, 'training seed')}, {sources} demonstrations"
    for of, seeds in sorted({(row.over_seeds.of, row.over_seeds.seeds) for row in summaries}):
        if seeds > 1:
            yield f"± is the standard error over {_count(seeds, f'{of} seed')}"
    for episodes, conditions in sorted({(row.episodes, row.conditions) for row in summaries}):
        if conditions < episodes:
            yield f"{episodes} episodes from {_count(conditions, 'initial condition')}: repeats are clusters in 95 %"
    yield "n: episodes; tokens and milliseconds are per chunk"
    for row in summaries:
        if row.task == POOLED:
            continue
        name = f"{row.policy}, {row.task}"
        if row.failed_decodes:
            yield f"{name}: {row.failed_decodes:.1%} of the chunks did not decode"
        if row.crashes:
            yield f"{name}: the simulator died in {_count(len(row.crashes), 'episode')} ({row.crashes[-1]})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def comparison_table(first: Sequence[EpisodeRecord], second: Sequence[EpisodeRecord]) -> Table:
    """The second against the first, on the initial conditions that both met."""
    one, two = by_condition(first), by_condition(second)
    shared = _shared_conditions(first, second)
    columns = ("task", "n", "first", "second", "gain", "95 %", "only 1st : 2nd", "p", "better")
    table = make_table("second against first, success in %", *columns)
    tasks = list(dict.fromkeys(task for task, _ in shared))
    for task in (*tasks, *((POOLED,) if len(tasks) > 1 else ())):
        chosen = [condition for condition in shared if task in (POOLED, condition[0])]
        names = [name for name, _ in chosen]
        rates = [[side[condition] for condition in chosen] for side in (one, two)]
        found = compare_paired(rates[0], rates[1], names)
        table.add_row(
            *(task, str(len(chosen)), *(f"{100 * _mean_over_tasks(names, side):.1f}" for side in rates)),
            *percent(found.difference),
            *(f"{found.only_first} : {found.only_second}", f"{found.p_value:.3g}", found.verdict),
        )
    sides = (f"{place}: {_origin(side)}" for place, side in (("first", first), ("second", second)))
    table.caption = "\n".join((*sides, "n: initial conditions"))
    return table


def compare_policies(
    first: Sequence[EpisodeRecord], second: Sequence[EpisodeRecord], *, same_protocol: bool = True
) -> PairedComparison:
    """The second against the first on the initial conditions that both met, tasks counting alike.

    Without `same_protocol` their protocols may differ: where what these prescribe is what is compared.
    """
    shared = _shared_conditions(first, second, same_protocol=same_protocol)
    one, two = by_condition(first), by_condition(second)
    return compare_paired([one[each] for each in shared], [two[each] for each in shared], [task for task, _ in shared])


def _shared_conditions(
    first: Sequence[EpisodeRecord], second: Sequence[EpisodeRecord], *, same_protocol: bool = True
) -> list[tuple[str, int]]:
    check_run_alike((record.key for record in (*first, *second)), same_protocol=same_protocol)
    others = by_condition(second)
    shared = [condition for condition in by_condition(first) if condition in others]
    if not shared:
        raise InvalidOption("the two sides share no initial conditions, so there is nothing to compare")
    return shared


def by_condition(records: Sequence[EpisodeRecord]) -> dict[tuple[str, int], float]:
    """The success rate at each initial condition, over repeats and training seeds."""
    groups: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for record in records:
        groups[record.key.task, record.key.condition].append(record.success)
    return {condition: float(np.mean(group)) for condition, group in groups.items()}


def _origin(records: Sequence[EpisodeRecord]) -> str:
    (policy,) = by_policy(records)
    seeds = len({record.key.training_seed for record in records})
    sources = " and ".join(sorted({record.data_source for record in records}))
    return f"{policy}, from {_count(seeds, 'training seed')}, {sources} demonstrations"
