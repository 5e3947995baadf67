"""Paired comparisons of two policies, on the initial conditions that both met."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from oat.errors import InvalidOption
from oat.evaluation.config import Measure
from oat.evaluation.records import EpisodeRecord
from oat.evaluation.statistics import PairedComparison, compare_paired
from oat.evaluation.summaries import (
    by_policy,
    check_run_alike,
    join_demonstrators,
    join_stand_ins,
    mean_over_tasks,
    note_stand_ins,
)
from oat.tables.interval import count_nouns, percent
from oat.tables.success import POOLED
from oat.tables.table import Table

_COLUMNS = ("task", "n", "first", "second", "gain", "95 %", "only 1st : 2nd", "p", "better")


def comparison_table(
    first: Sequence[EpisodeRecord], second: Sequence[EpisodeRecord], measure: Measure = "success"
) -> Table:
    """Return a table of the second policy against the first: a row for each task, and for all of them."""
    shared = _shared_conditions(first, second)
    one = by_condition(first, measure)
    two = by_condition(second, measure)
    tasks = list(dict.fromkeys(task for task, _ in shared))
    rows = []
    for task in (*tasks, POOLED) if len(tasks) > 1 else tasks:
        chosen = [condition for condition in shared if task in (POOLED, condition[0])]
        names = [name for name, _ in chosen]
        rates = [[side[condition] for condition in chosen] for side in (one, two)]
        found = compare_paired(rates[0], rates[1], names)
        rows.append(
            (
                task,
                str(len(chosen)),
                *(f"{100 * mean_over_tasks(names, side):.1f}" for side in rates),
                *percent(found.difference),
                f"{found.only_first} : {found.only_second}",
                f"{found.p_value:.3g}",
                found.verdict,
            )
        )
    sides = (f"first: {_describe(first)}", f"second: {_describe(second)}")
    apart = len(one.keys() & two.keys()) - len(shared)
    left_out = (f"{count_nouns(apart, 'condition')} left out: begun at different stored starts",) if apart else ()
    notes = (*sides, *left_out, *note_stand_ins(join_stand_ins((*first, *second))), "n: initial conditions")
    return Table(f"second against first, {measure} in %", _COLUMNS, tuple(rows), notes)


def compare_policies(
    first: Sequence[EpisodeRecord],
    second: Sequence[EpisodeRecord],
    *,
    same_protocol: bool = True,
    measure: Measure = "success",
) -> PairedComparison:
    """Compare the second with the first on the initial conditions that both met, tasks counting alike.

    Without `same_protocol` their protocols may differ, for experiments that compare protocols.
    """
    shared = _shared_conditions(first, second, same_protocol=same_protocol)
    one = by_condition(first, measure)
    two = by_condition(second, measure)
    return compare_paired([one[each] for each in shared], [two[each] for each in shared], [task for task, _ in shared])


def _shared_conditions(
    first: Sequence[EpisodeRecord], second: Sequence[EpisodeRecord], *, same_protocol: bool = True
) -> list[tuple[str, int]]:
    """Return the conditions that both sides met; raise InvalidOption if there are none, or they were not met alike."""
    check_run_alike((record.key for record in (*first, *second)), same_protocol=same_protocol)
    shared = shared_conditions(first, second)
    if not shared:
        raise InvalidOption("the two sides share no initial conditions, so there is nothing to compare")
    return shared


def shared_conditions(first: Sequence[EpisodeRecord], second: Sequence[EpisodeRecord]) -> list[tuple[str, int]]:
    """Return the task and number of each initial condition that both sides met.

    A number for which they began at different stored starts, as another machine may have drawn them, is none of these.
    """
    met = by_condition(second)
    starts: dict[tuple[str, int], set[str]] = defaultdict(set)
    for record in (*first, *second):
        starts[record.key.task, record.key.condition] |= {record.start} - {""}
    return [condition for condition in by_condition(first) if condition in met and len(starts[condition]) <= 1]


def by_condition(records: Sequence[EpisodeRecord], measure: Measure = "success") -> dict[tuple[str, int], float]:
    """Return the success rate or mean best score at each initial condition, over repeats and training seeds."""
    # Repeats of a condition are not independent: they are averaged, so that each condition is one observation.
    groups: dict[tuple[str, int], list[float]] = defaultdict(list)
    for record in records:
        groups[record.key.task, record.key.condition].append(
            record.success if measure == "success" else record.best_score
        )
    return {condition: float(np.mean(group)) for condition, group in groups.items()}


def _describe(records: Sequence[EpisodeRecord]) -> str:
    """Return a policy's name, how often it was trained, and who gave its demonstrations, for a note."""
    (policy,) = by_policy(records)
    seeds = len({record.key.training_seed for record in records})
    return f"{policy}, from {count_nouns(seeds, 'training seed')}, {join_demonstrators(records)} demonstrations"
