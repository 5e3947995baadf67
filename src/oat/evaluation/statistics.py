"""What success counts say and what they do not: intervals, paired comparisons, clusters.

Episodes from one initial condition are alike, so they count as one cluster: its mean is one observation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from oat.errors import InvalidOption

_NORMAL_95 = 1.959963984540054  # the standard normal's 97.5 % quantile
_RESAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """An estimate with a 95 % interval."""

    estimate: float
    low: float
    high: float


def wilson(successes: float, trials: float) -> Interval:
    """Wilson's score interval of a success rate; trials may be an effective number."""
    if trials <= 0 or not 0 <= successes <= trials:
        raise InvalidOption(f"a rate needs trials, and successes among them, got {successes} of {trials}")
    rate, z2 = successes / trials, _NORMAL_95**2
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _NORMAL_95 / (1 + z2 / trials) * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    return Interval(rate, max(0.0, centre - half), min(1.0, centre + half))


def success_rate(outcomes: Sequence[bool | float], clusters: Sequence[object] | None = None) -> Interval:
    """The success rate of episodes; with clusters, by the number of independent trials that would vary as much."""
    means = _cluster_means(outcomes, clusters)
    rate = float(np.mean(np.asarray(outcomes, float)))
    if clusters is None or len(means) == len(outcomes):
        return wilson(float(np.sum(np.asarray(outcomes, float))), len(outcomes))
    variance = float(np.var(means, ddof=1)) / len(means) if len(means) > 1 else 0.0
    effective = rate * (1 - rate) / variance if variance > 0 else float(len(means))
    return wilson(rate * (bounded := min(max(effective, 1.0), float(len(outcomes)))), bounded)


def mean_and_standard_error(values: Sequence[float]) -> tuple[float, float]:
    """As papers print it, over training seeds; one seed has no standard error."""
    if not values:
        raise InvalidOption("no values to average")
    array = np.asarray(values, float)
    return float(array.mean()), float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else math.nan


@dataclass(frozen=True)
class PairedComparison:
    """One method against another on the same initial conditions."""

    difference: Interval
    """Second minus first, over conditions."""
    only_first: int
    only_second: int
    """Conditions that only the one or only the other solved (more often)."""
    p_value: float
    """Exact, two-sided: how likely so uneven a split would be if neither were better."""
    conditions: int

    @property
    def verdict(self) -> str:
        """Which is better, as far as these conditions tell."""
        if self.p_value >= 0.05:
            return "undecided"
        return "second" if self.only_second > self.only_first else "first"


def compare_paired(
    first: Sequence[bool | float], second: Sequence[bool | float], clusters: Sequence[object] | None = None
) -> PairedComparison:
    """Episode i of both methods began alike; clusters name conditions that repeat."""
    if len(first) != len(second) or not first:
        raise InvalidOption(f"paired outcomes must be equally many and some, got {len(first)} and {len(second)}")
    one, two = (_cluster_means(outcomes, clusters) for outcomes in (first, second))
    gaps = two - one
    only_first, only_second = int((gaps < 0).sum()), int((gaps > 0).sum())
    return PairedComparison(_bootstrap(gaps), only_first, only_second, _sign_test(only_first, only_second), len(gaps))


def _cluster_means(
    outcomes: Sequence[bool | float], clusters: Sequence[object] | None
) -> Float64[np.ndarray, " clusters"]:
    values = np.asarray(outcomes, float)
    if clusters is None:
        return values
    if len(clusters) != len(values):
        raise InvalidOption(f"{len(values)} outcomes need as many clusters, got {len(clusters)}")
    names = list(dict.fromkeys(clusters))
    numbers = np.array([names.index(cluster) for cluster in clusters])
    return np.bincount(numbers, weights=values) / np.bincount(numbers)


def _sign_test(fewer: int, more: int) -> float:
    """Two-sided binomial test of an even split."""
    total, extreme = fewer + more, max(fewer, more)
    tail = sum(math.comb(total, k) for k in range(extreme, total + 1)) / 2**total
    return min(1.0, 2 * tail)


def _bootstrap(gaps: Float64[np.ndarray, " conditions"]) -> Interval:
    """Percentiles of the mean over conditions drawn with replacement."""
    generator = np.random.default_rng(0)
    drawn = generator.integers(0, len(gaps), (_RESAMPLES, len(gaps)))
    low, high = np.quantile(gaps[drawn].mean(1), [0.025, 0.975])
    return Interval(float(gaps.mean()), float(low), float(high))
