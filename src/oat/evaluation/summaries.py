"""Summaries of episodes: how often each policy succeeded at each task, and what it took."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oat.errors import InvalidOption
from oat.evaluation.records import EpisodeKey, EpisodeRecord
from oat.evaluation.statistics import mean_and_standard_error, mean_of_conditions, success_rate
from oat.sims.assets import stand_ins
from oat.tables.interval import Interval
from oat.tables.success import POOLED, Rate, Spread


@dataclass(frozen=True)
class Summary:
    """Describe the episodes of one policy on one task, or on all of them, each counting alike."""

    policy: str
    task: str
    rate: Rate
    conditions: int
    """Initial conditions that the episodes began at."""
    over_seeds: Spread
    training_seeds: int
    score: Interval | None
    """Mean over conditions of the best score in each, where it tells more than success does."""
    steps: float
    """Mean length of an episode."""
    tokens_per_chunk: float
    failed_decodes: float
    """Share of chunks that did not decode."""
    jerk: float
    inference_ms: float
    demonstrator: str
    stand_ins: str
    """What stood for the benchmark's own assets, such as stand-in kitchen; empty where nothing did."""
    jump: float | None
    """Mean distance between the last action of a chunk and the first of the next; None in records of before."""
    crashes: tuple[str, ...]
    """Last line of what the simulator died of, for each episode in which it did."""

    @property
    def success(self) -> Interval:
        """Return the success rate with its interval."""
        return self.rate.interval

    @property
    def episodes(self) -> int:
        """Return how many episodes the success rate is of."""
        return self.rate.episodes


def by_policy(records: Iterable[EpisodeRecord]) -> dict[str, list[EpisodeRecord]]:
    """Return records by what tables call a policy: method and decoding, trained with any seed.

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
    """Raise InvalidOption where episodes that are to be put side by side were not run alike."""
    ways = sorted({_way(key, same_protocol=same_protocol) for key in keys})
    if len(ways) > 1:
        raise InvalidOption(f"these records were not made alike: {', '.join(ways)}; keep them in different directories")


def _way(key: EpisodeKey, *, same_protocol: bool) -> str:
    """Return in words what must be equal for two episodes to be run alike."""
    conditions = f"on {key.split} conditions"
    return f"protocol {key.protocol} {conditions}" if same_protocol else conditions


def summarize(records: Sequence[EpisodeRecord]) -> list[Summary]:
    """Return a summary for every policy on every task, and on all of them together where they are several."""
    check_run_alike(record.key for record in records)
    summaries = []
    for policy, group in by_policy(records).items():
        tasks = list(dict.fromkeys(record.key.task for record in group))
        summaries += [_summary(policy, task, [r for r in group if r.key.task == task]) for task in tasks]
        if len(tasks) > 1:
            summaries.append(_summary(policy, POOLED, group))
    return summaries


def _summary(policy: str, task: str, records: Sequence[EpisodeRecord]) -> Summary:
    """Return the summary of these records, in which every task counts alike."""
    chunks = max(1, sum(record.chunks for record in records))
    tasks = [record.key.task for record in records]
    conditions = [(record.key.task, record.key.condition) for record in records]
    outcomes = [record.success for record in records]
    return Summary(
        policy=policy,
        task=task,
        rate=Rate(success_rate(outcomes, conditions, tasks), len(records), sum(outcomes)),
        conditions=len(set(conditions)),
        over_seeds=_spread(records),
        training_seeds=len({record.key.training_seed for record in records}),
        score=_score(records),
        steps=mean_over_tasks(tasks, [record.steps for record in records]),
        tokens_per_chunk=sum(record.tokens for record in records) / chunks,
        failed_decodes=sum(record.failed_decodes for record in records) / chunks,
        jerk=_mean_of_known(record.jerk for record in records),
        inference_ms=_mean_of_known(record.inference_ms_p50 for record in records),
        demonstrator=join_demonstrators(records),
        stand_ins=join_stand_ins(records),
        jump=_jump(records),
        crashes=tuple(record.error.strip().splitlines()[-1] for record in records if record.crashed),
    )


def _jump(records: Sequence[EpisodeRecord]) -> float | None:
    known = [record.jump for record in records if record.jump is not None]
    return float(np.mean(known)) if known else None


def _score(records: Sequence[EpisodeRecord]) -> Interval | None:
    """Return the mean of each episode's best score; None where all are 1 for success and 0 for failure."""
    if all(record.best_score == record.success for record in records):
        return None
    conditions: dict[tuple[str, int], list[float]] = defaultdict(list)
    for record in records:
        conditions[record.key.task, record.key.condition].append(record.best_score)
    return mean_of_conditions([float(np.mean(each)) for each in conditions.values()], [task for task, _ in conditions])


def _spread(records: Sequence[EpisodeRecord]) -> Spread:
    """Return how much seeds differ: trainings where there are several, else groups of episodes."""
    several = len({record.key.training_seed for record in records}) > 1
    seeds: dict[int, list[EpisodeRecord]] = defaultdict(list)
    for record in records:
        seeds[record.key.training_seed if several else record.evaluation_seed].append(record)
    rates = [mean_over_tasks([r.key.task for r in group], [r.success for r in group]) for group in seeds.values()]
    mean, error = mean_and_standard_error(rates)
    return Spread(mean, error, len(rates), "training" if several else "evaluation")


def mean_over_tasks(tasks: Sequence[str], values: Sequence[float]) -> float:
    """Return the mean of the tasks' means, so that a task with more episodes does not count for more."""
    groups: dict[str, list[float]] = defaultdict(list)
    for task, value in zip(tasks, values, strict=True):
        groups[task].append(value)
    return float(np.mean([np.mean(group) for group in groups.values()]))


def _mean_of_known(values: Iterable[float | None]) -> float:
    """Return the mean of the values that are not None; NaN where there is none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")


def join_demonstrators(records: Iterable[EpisodeRecord]) -> str:
    """Return who gave the demonstrations that these records' policies were trained on."""
    return " and ".join(sorted({record.demonstrator for record in records}))


def join_stand_ins(records: Iterable[EpisodeRecord]) -> str:
    """Return what stood for benchmarks' own assets in these records, such as stand-in kitchen."""
    return " and ".join(sorted({each for record in records for each in stand_ins(record.versions)}))


def note_stand_ins(told: str) -> tuple[str, ...]:
    """Return the note of a table on what stood for benchmarks' own assets, if anything did."""
    return (f"assets: {told}",) if told else ()


def overall(summaries: Iterable[Summary]) -> Mapping[str, Summary]:
    """Return by policy its summary on all tasks that it met, which comes after those of single tasks."""
    return {summary.policy: summary for summary in summaries}
