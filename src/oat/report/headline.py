"""What the material says, in a few numbers and sentences that are computed from it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oat.evaluation.comparisons import by_condition
from oat.evaluation.statistics import compare_paired
from oat.evaluation.summaries import Summary, by_policy
from oat.report.reconstructions import Data, Reconstruction, best_ordered, most_comparable
from oat.report.rollouts import ClosedLoop
from oat.tables.interval import Interval


@dataclass(frozen=True)
class Tile:
    """A number to be seen first."""

    value: str
    label: str


def tiles(datasets: Sequence[Data], tokenizers: Sequence[Reconstruction], loops: Sequence[ClosedLoop]) -> list[Tile]:
    """One for each stage of the pipeline that there is."""
    found = []
    if datasets:
        tasks = {task for data in datasets for task in data.episodes.tasks}
        count = sum(len(data.episodes) for data in datasets)
        found.append(Tile(f"{count:,}", f"demonstrations of {_count(len(tasks), 'task')}"))
    if ordered := best_ordered(tokenizers):
        space, tokens = ordered.space, ordered.evaluation.prefixes[-1]
        found.append(Tile(f"1 … {tokens}", f"tokens for {space.action_horizon} × {space.action_dim} numbers"))
    if loops:
        best = _best_policy(_largest(loops))
        found.append(
            Tile(f"{100 * best.success.estimate:.1f} %", f"solved by {best.policy}, {_where(_largest(loops))}")
        )
        found.append(Tile(f"{sum(len(loop.records) for loop in loops):,}", "episodes recorded"))
    return found


def sentences(tokenizers: Sequence[Reconstruction], loops: Sequence[ClosedLoop]) -> Iterator[str]:
    """The tokenizers first, then what policies do with their tokens."""
    alike = most_comparable(tokenizers)
    if ordered := best_ordered(tokenizers):
        yield _about_prefixes(ordered)
    rivals = {each.method: each for each in reversed(alike) if not each.ordered}  # the first seed of each
    if rivals:
        yield f"On held-out chunks of {alike[0].data}, {'; '.join(map(_about_whole, reversed(rivals.values())))}."
    if loops:
        yield _about_best(_largest(loops))
        yield from _about_more_tokens(_largest(loops))


def _largest(loops: Sequence[ClosedLoop]) -> ClosedLoop:
    return max(loops, key=lambda loop: len(loop.records))


def _about_prefixes(each: Reconstruction) -> str:
    found, space = each.evaluation, each.space
    return (
        f"{each.name} writes {space.action_horizon} × {space.action_dim} numbers as {found.prefixes[-1]} ordered "
        f"tokens ({found.bits:.0f} bits). Over {found.chunks:,} held-out chunks its mean squared error is "
        f"{found.mse[0]:.2g} after the first token and {found.mse[-1]:.2g} after the last; for "
        f"{100 * found.monotone:.0f} % of the chunks it falls, or stays, with every single token."
    )


def _about_whole(each: Reconstruction) -> str:
    found = each.evaluation
    return f"{each.name} takes {found.tokens:.3g} tokens ({found.bits:,.0f} bits) for an error of {found.mse[-1]:.2g}"


def _best_policy(loop: ClosedLoop) -> Summary:
    return max(loop.overall, key=lambda row: row.success.estimate)


def _about_best(loop: ClosedLoop) -> str:
    best, rate = _best_policy(loop), _best_policy(loop).success
    leads = "solved most" if len(loop.overall) > 1 else "solved"
    return (
        f"On {_where(loop)}, {best.policy} {leads}: {100 * rate.estimate:.1f} % of {best.episodes} episodes "
        f"({_interval(rate)})."
    )


def _about_more_tokens(loop: ClosedLoop) -> Iterator[str]:
    """For every method with several decodings: the dearest against the cheapest, on the conditions that both met."""
    records = by_policy(loop.records)
    for method in dict.fromkeys(loop.methods.values()):
        mine = [row for row in loop.overall if loop.methods[row.policy] == method]
        few, many = (choose(mine, key=lambda row: row.tokens_per_chunk) for choose in (min, max))
        one, two = (by_condition(records[row.policy]) for row in (few, many))
        shared = [condition for condition in one if condition in two]
        if few is many or not shared:
            continue
        found = compare_paired([one[c] for c in shared], [two[c] for c in shared], [task for task, _ in shared])
        gain, change = found.difference, _true_minus(f"{100 * found.difference.estimate:+.1f}")
        verdict = {"second": f"{many.policy} is better", "first": f"{few.policy} is better"}
        yield (
            f"From {few.policy} to {many.policy} success changes by {change} points "
            f"({_interval(gain, '+')}) on the {len(shared)} initial conditions that both met: "
            f"{verdict.get(found.verdict, 'undecided')} (p = {found.p_value:.2g})."
        )


def _where(loop: ClosedLoop) -> str:
    return f"{loop.tasks[0] if len(loop.tasks) == 1 else _count(len(loop.tasks), 'task')} ({loop.protocol})"


def _interval(found: Interval, sign: str = "") -> str:
    """In percent, on one line."""
    return _true_minus(f"95\u00a0%: {100 * found.low:{sign}.0f}\u00a0…\u00a0{100 * found.high:{sign}.0f}")


def _true_minus(number: str) -> str:
    return number.replace("-", "−")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
