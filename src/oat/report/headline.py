"""Say what the results show in a few numbers and sentences, which are computed from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oat.evaluation.comparisons import compare_policies, shared_conditions
from oat.evaluation.summaries import Summary, by_policy
from oat.report.datasets import NamedDataset
from oat.report.measured_tokenizers import MeasuredTokenizer, best_ordered, most_comparable
from oat.report.rollouts import RolloutGroup
from oat.tables.interval import Interval, count_nouns, format_percent, format_percent_range


@dataclass(frozen=True)
class Tile:
    """Hold a number that the reader sees first, with what it counts."""

    value: str
    label: str


def make_tiles(
    datasets: Sequence[NamedDataset], tokenizers: Sequence[MeasuredTokenizer], rollouts: Sequence[RolloutGroup]
) -> list[Tile]:
    """Return the numbers that the page opens with, for those stages of the pipeline that have results."""
    tiles = []
    if datasets:
        tasks = {task for dataset in datasets for task in dataset.episodes.tasks}
        count = sum(len(dataset.episodes) for dataset in datasets)
        tiles.append(Tile(f"{count:,}", f"demonstrations of {count_nouns(len(tasks), 'task')}"))
    if ordered := best_ordered(tokenizers):
        space = ordered.space
        most_tokens = ordered.evaluation.prefixes[-1]
        tiles.append(Tile(f"1 … {most_tokens}", f"tokens for {space.action_horizon} × {space.action_dim} numbers"))
    if rollouts:
        largest = _largest(rollouts)
        best = _best_policy(largest)
        tiles.append(Tile(f"{100 * best.success.estimate:.1f} %", f"solved by {best.policy}, {_where(largest)}"))
        tiles.append(Tile(f"{sum(len(group.records) for group in rollouts):,}", "episodes recorded"))
    return tiles


def make_sentences(tokenizers: Sequence[MeasuredTokenizer], rollouts: Sequence[RolloutGroup]) -> Iterator[str]:
    """Yield what the tokenizers do, then what policies do with their tokens."""
    comparable = most_comparable(tokenizers)
    if ordered := best_ordered(tokenizers):
        yield _about_prefixes(ordered)
    # Going backwards, the first training seed of each method is the one that stays.
    unordered = {each.method: each for each in reversed(comparable) if not each.ordered}
    if unordered:
        facts = "; ".join(map(_about_whole_chunks, reversed(unordered.values())))
        yield f"On held-out chunks of {comparable[0].data}, {facts}."
    if rollouts:
        yield _about_best_policy(_largest(rollouts))
        yield from _about_more_tokens(_largest(rollouts))


def _largest(rollouts: Sequence[RolloutGroup]) -> RolloutGroup:
    """Return the group with the most episodes, whose rates are the most certain."""
    return max(rollouts, key=lambda group: len(group.records))


def _about_prefixes(tokenizer: MeasuredTokenizer) -> str:
    measures = tokenizer.evaluation
    space = tokenizer.space
    return (
        f"{tokenizer.name} writes {space.action_horizon} × {space.action_dim} numbers as {measures.prefixes[-1]} "
        f"ordered tokens ({measures.bits:.0f} bits). Over {measures.chunks:,} held-out chunks its mean squared error "
        f"is {measures.mse[0]:.2g} after the first token and {measures.mse[-1]:.2g} after the last; for "
        f"{100 * measures.monotone:.0f} % of the chunks it falls, or stays, with every single token."
    )


def _about_whole_chunks(tokenizer: MeasuredTokenizer) -> str:
    measures = tokenizer.evaluation
    return (
        f"{tokenizer.name} takes {measures.tokens:.3g} tokens ({measures.bits:,.0f} bits) "
        f"for an error of {measures.mse[-1]:.2g}"
    )


def _best_policy(group: RolloutGroup) -> Summary:
    return max(group.overall, key=lambda row: row.success.estimate)


def _about_best_policy(group: RolloutGroup) -> str:
    best = _best_policy(group)
    leads = "solved most" if len(group.overall) > 1 else "solved"
    return (
        f"On {_where(group)}, {best.policy} {leads}: {100 * best.success.estimate:.1f} % of {best.episodes} episodes "
        f"({_interval(best.success)})."
    )


def _about_more_tokens(group: RolloutGroup) -> Iterator[str]:
    """Compare the most tokens with the fewest, for every method that acted from several numbers of tokens."""
    records = by_policy(group.records)
    for method in dict.fromkeys(group.methods.values()):
        rows = [row for row in group.overall if group.methods[row.policy] == method]
        few = min(rows, key=lambda row: row.tokens_per_chunk)
        many = max(rows, key=lambda row: row.tokens_per_chunk)
        sides = (records[few.policy], records[many.policy])
        # A paired test needs initial conditions that both met.
        if few is many or not shared_conditions(*sides):
            continue
        comparison = compare_policies(*sides)
        verdicts = {"second": f"{many.policy} is better", "first": f"{few.policy} is better"}
        change = format_percent(comparison.difference.estimate, "+.1f")
        yield (
            f"From {few.policy} to {many.policy} success changes by {change} points "
            f"({_interval(comparison.difference, '+')}) on the {comparison.pairs} initial conditions that both met: "
            f"{verdicts.get(comparison.verdict, 'undecided')} (p = {comparison.p_value:.2g})."
        )


def _where(group: RolloutGroup) -> str:
    tasks = group.tasks[0] if len(group.tasks) == 1 else count_nouns(len(group.tasks), "task")
    return f"{tasks} ({group.protocol})"


def _interval(interval: Interval, sign: str = "") -> str:
    """Format an interval of shares in percent, with spaces that do not break the line."""
    limits = format_percent_range(interval, f"{sign}.0f").replace(" ", "\u00a0").replace("-", "−")
    return f"95\u00a0%: {limits}"
