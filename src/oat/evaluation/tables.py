"""Summaries as tables of success: every policy on every task, or a row for each policy."""

from collections.abc import Iterator, Sequence

from oat.evaluation.summaries import Summary, note_stand_ins, overall
from oat.tables.interval import count_nouns
from oat.tables.success import EVALUATION_COLUMNS, POOLED, SuccessRow, page_columns, success_table
from oat.tables.table import Table


def summary_table(summaries: Sequence[Summary]) -> Table:
    """Return a table with a row for each policy and task; what all share is in the notes."""
    rows = [
        SuccessRow(
            each.policy,
            {each.task: each.rate},
            each.task,
            spread=each.over_seeds,
            score=each.score,
            episode_steps=each.steps,
            tokens_per_chunk=each.tokens_per_chunk,
            jerk=each.jerk,
            inference_ms=each.inference_ms,
        )
        for each in summaries
    ]
    return success_table("closed loop", rows, EVALUATION_COLUMNS, tuple(_notes(summaries)))


def policy_table(title: str, summaries: Sequence[Summary]) -> Table:
    """Return a table with a row for each policy, its success on each task side by side."""
    tasks = list(dict.fromkeys(each.task for each in summaries if each.task != POOLED))
    rows = [
        SuccessRow(
            policy,
            {task.task: task.rate for task in summaries if task.policy == policy},
            tokens_per_chunk=pooled.tokens_per_chunk,
            inference_ms=pooled.inference_ms,
        )
        for policy, pooled in overall(summaries).items()
    ]
    notes = (*_stand_ins(summaries), "overall: every task counts alike", "tokens, ms: per chunk")
    return success_table(title, rows, page_columns(tasks), notes)


def _notes(summaries: Sequence[Summary]) -> Iterator[str]:
    for seeds in sorted({each.training_seeds for each in summaries}):
        policies = dict.fromkeys(each.policy for each in summaries if each.training_seeds == seeds)
        sources = " and ".join(sorted({each.demonstrator for each in summaries if each.training_seeds == seeds}))
        yield f"{', '.join(policies)}: from {count_nouns(seeds, 'training seed')}, {sources} demonstrations"
    for of, seeds in sorted({(each.over_seeds.of, each.over_seeds.seeds) for each in summaries}):
        if seeds > 1:
            yield f"± is the standard error over {count_nouns(seeds, f'{of} seed')}"
    for episodes, conditions in sorted({(each.episodes, each.conditions) for each in summaries}):
        if conditions < episodes:
            met = count_nouns(conditions, "initial condition")
            yield f"{episodes} episodes from {met}: repeats are clusters in 95 %"
    yield from _stand_ins(summaries)
    yield "n: episodes; tokens and milliseconds are per chunk"
    for each in summaries:
        if each.task != POOLED:
            yield from _problems(each)


def _stand_ins(summaries: Sequence[Summary]) -> tuple[str, ...]:
    return note_stand_ins(" and ".join(sorted({each.stand_ins for each in summaries if each.stand_ins})))


def _problems(summary: Summary) -> Iterator[str]:
    name = f"{summary.policy}, {summary.task}"
    if summary.failed_decodes:
        yield f"{name}: {summary.failed_decodes:.1%} of the chunks did not decode"
    if summary.crashes:
        died = count_nouns(len(summary.crashes), "episode")
        yield f"{name}: the simulator died in {died} ({summary.crashes[-1]})"
