"""What the paper claims, held against paired comparisons: held, not held, or undecided."""

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

from oat.errors import InvalidOption
from oat.evaluation.statistics import PairedComparison

Claim = tuple[str, Sequence[str]]
"""A sentence, and what it ranks, from worst to best."""

MONOTONE: Claim = ("more tokens act better", ("OAT_1", "OAT_2", "OAT_4", "OAT_8"))
RIVALS = ("DP", "Bin", "FAST", "QueST")
BETTER_THAN_RIVALS: tuple[Claim, ...] = tuple((f"OAT_8 acts better than {rival}", (rival, "OAT_8")) for rival in RIVALS)


def decide_claim(claim: Claim, known: Collection[str], compare: Callable[[str, str], PairedComparison]) -> str:
    """The claim and what became of it; `compare` holds the second of two neighbours against the first."""
    sentence, chain = claim
    absent = [label for label in chain if label not in known]
    if absent:
        return f"claim: {sentence}: undecided, {', '.join(absent)} was not run"
    verdicts, told = [], []
    for worse, better in pairwise(chain):
        try:
            result = compare(worse, better)
        except InvalidOption as reason:  # nothing that both met, or not in the same way
            return f"claim: {sentence}: undecided, {worse} and {better}: {reason}"
        verdicts.append(result.verdict)
        gain = f"{100 * result.difference.estimate:+.1f}".replace("-", "−")
        told.append(f"{better} − {worse} = {gain} points on {result.pairs} conditions, p = {result.p_value:.2g}")
    if all(verdict == "second" for verdict in verdicts):
        outcome = "held"
    else:
        outcome = "not held" if "first" in verdicts else "undecided"
    return f"claim: {sentence}: {outcome} ({'; '.join(told)})"
