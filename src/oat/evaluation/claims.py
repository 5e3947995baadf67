"""Claims about the order of methods, decided by paired comparisons: held, not held, or undecided."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise

from oat.errors import InvalidOption
from oat.evaluation.statistics import PairedComparison, compare_often
from oat.tables.interval import format_percent

Claim = tuple[str, Sequence[str]]
"""A sentence, and the labels of the rows that it ranks, from worst to best."""


def decide_claim(claim: Claim, known: Collection[str], compare: Callable[[str, str], PairedComparison]) -> str:
    """Return the claim and whether it held; `compare` compares the second of two neighbours with the first."""
    sentence, chain = claim
    absent = [label for label in chain if label not in known]
    if absent:
        return f"claim: {sentence}: undecided, {', '.join(absent)} was not run"
    found: list[tuple[PairedComparison, str]] = []
    for worse, better in pairwise(chain):
        try:
            result = compare(worse, better)
        except InvalidOption as reason:  # nothing that both met, or not in the same way
            return f"claim: {sentence}: undecided, {worse} and {better}: {reason}"
        gain = format_percent(result.difference.estimate, "+.1f")
        found.append((result, f"{better} − {worse} = {gain} points on {result.pairs} conditions"))
    return _state(sentence, found)


def decide_rising(claim: Claim, values: Mapping[str, Sequence[float]]) -> str:
    """Return whether each one's values are below the next one's, from those that were measured together."""
    sentence, chain = claim
    found: list[tuple[PairedComparison, str]] = []
    for one, other in pairwise(chain):
        result = compare_often(values[one], values[other])
        found.append((result, f"{one} < {other} in {result.only_second} of {result.pairs}"))
    return _state(sentence, found)


def _state(sentence: str, found: Sequence[tuple[PairedComparison, str]]) -> str:
    """Return a claim and whether it held, from comparisons in which the second should be ahead."""
    verdicts = [result.verdict for result, _ in found]
    if all(verdict == "second" for verdict in verdicts):
        outcome = "held"
    else:
        # One pair the other way round refutes the whole chain; pairs that are merely undecided do not.
        outcome = "not held" if "first" in verdicts else "undecided"
    told = (f"{text}, p = {result.p_value:.2g}" for result, text in found)
    return f"claim: {sentence}: {outcome} ({'; '.join(told)})"
