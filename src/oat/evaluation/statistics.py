"""Statistics of success: intervals of rates, paired comparisons and rank correlations, with clusters.

Episodes from one initial condition are alike, so they count as one cluster; tasks are strata, each counting alike.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from oat.errors import InvalidOption
from oat.tables.interval import Interval

_NORMAL_95 = 1.959963984540054  # the standard normal's 97.5 % quantile
_RESAMPLES = 10_000  # of bootstraps and permutations; the 2.5 % quantile then rests on 250 of them
_GRID = 500  # parts of the largest difference that differences are rounded to, where they are not all alike
_FEW_CLUSTERS = 5  # below, resampling them has too few distinct outcomes for an interval


def wilson(successes: float, trials: float) -> Interval:
    """Return Wilson's score interval of a success rate; trials may be an effective number, and not whole.

    With rate p of n trials and z the normal quantile: (p + z² / 2n ± z √(p (1 − p) / n + z² / 4n²)) / (1 + z² / n).
    """
    if trials <= 0 or not 0 <= successes <= trials:
        raise InvalidOption(f"a rate needs trials, and successes among them, got {successes} of {trials}")
    rate = successes / trials
    z2 = _NORMAL_95**2
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _NORMAL_95 / (1 + z2 / trials) * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    return Interval(rate, max(0.0, centre - half), min(1.0, centre + half))


def success_rate(
    outcomes: Sequence[bool | float],
    clusters: Sequence[Hashable] | None = None,
    strata: Sequence[Hashable] | None = None,
) -> Interval:
    """Return the success rate of episodes, averaged over strata.

    The interval is Wilson's for the number of independent trials whose rate would vary as much as this one does: at
    most as many as there are episodes, fewer where clusters repeat conditions or strata differ in size.
    """
    if not outcomes:
        raise InvalidOption("no episodes, so there is no success rate")
    values = np.asarray(outcomes, float)
    cluster = np.arange(len(values)) if clusters is None else _numbers(clusters, len(values))
    stratum = np.zeros(len(values), np.int64) if strata is None else _numbers(strata, len(values))
    chosen = [stratum == number for number in range(int(stratum.max()) + 1)]
    rates, variances = zip(*(_rate_and_variance(values[rows], cluster[rows]) for rows in chosen), strict=True)
    rate = sum(rates) / len(rates)
    variance = sum(variances) / len(rates) ** 2
    # Where nothing varies, all or none succeeded: then clusters, and not their repeats, say how sure that is.
    effective = rate * (1 - rate) / variance if variance > 0 else len(np.unique(cluster))
    trials = min(max(effective, 1.0), float(len(values)))
    return wilson(min(rate * trials, trials), trials)


def _rate_and_variance(
    outcomes: Float64[np.ndarray, " episodes"], clusters: Int64[np.ndarray, " episodes"]
) -> tuple[float, float]:
    """Return a rate and its sampling variance, from the differences between clusters where any repeat."""
    _, places, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    rate = float(outcomes.mean())
    count = len(sizes)
    # Without repeats the variance is the binomial one; a single cluster has no differences to estimate it from.
    if count == len(outcomes) or count == 1:
        return rate, rate * (1 - rate) / count
    excess = np.bincount(places, weights=outcomes) - rate * sizes
    return rate, float(np.square(excess).sum()) * count / (count - 1) / len(outcomes) ** 2


def mean_and_standard_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean over seeds and its standard error, as papers print them; NaN for the error of one seed."""
    if not values:
        raise InvalidOption("no values to average")
    array = np.asarray(values, float)
    return float(array.mean()), float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else math.nan


def mean_of_conditions(values: Sequence[float], strata: Sequence[Hashable]) -> Interval:
    """Return the mean of conditions' values, averaged over strata, such as of scores between 0 and 1."""
    array = np.asarray(values, float)
    stratum = _numbers(strata, len(array))
    return _bootstrap([array[stratum == number] for number in range(int(stratum.max()) + 1)])


@dataclass(frozen=True)
class PairedComparison:
    """Hold how one method compares with another on the same initial conditions."""

    difference: Interval
    """Second minus first, averaged over strata."""
    only_first: int
    only_second: int
    """Conditions that only the one or only the other solved (more often)."""
    p_value: float
    """Two-sided: how likely so large a difference, or so uneven a split, would be if neither were better."""
    pairs: int
    """Conditions that were compared."""

    @property
    def verdict(self) -> str:
        """Return which is better, "first" or "second", or "undecided" where these conditions do not tell."""
        if self.p_value >= 0.05:
            return "undecided"
        return "second" if self.difference.estimate > 0 else "first"


def compare_paired(
    first: Sequence[bool | float], second: Sequence[bool | float], strata: Sequence[Hashable] | None = None
) -> PairedComparison:
    """Compare two methods by the mean of their successes, success rates or scores at the same conditions."""
    gaps = _gaps(first, second)
    stratum = np.zeros(len(gaps), np.int64) if strata is None else _numbers(strata, len(gaps))
    parts = [gaps[stratum == number] for number in range(int(stratum.max()) + 1)]
    return _comparison(gaps, _bootstrap(parts), _flip_test(parts))


def compare_often(first: Sequence[float], second: Sequence[float]) -> PairedComparison:
    """Compare two series by how often the one is larger: for times and errors, of which a few outliers rule the mean.

    Its difference is that of how often, from −1 where the first always is larger to 1.
    """
    signs = np.sign(_gaps(first, second))
    return _comparison(signs, _bootstrap([signs]), _flip_test([signs]))


def _gaps(first: Sequence[bool | float], second: Sequence[bool | float]) -> Float64[np.ndarray, " pairs"]:
    if len(first) != len(second) or not first:
        raise InvalidOption(f"paired outcomes must be equally many and some, got {len(first)} and {len(second)}")
    return np.asarray(second, float) - np.asarray(first, float)


def _comparison(gaps: Float64[np.ndarray, " pairs"], difference: Interval, p_value: float) -> PairedComparison:
    return PairedComparison(difference, int((gaps < 0).sum()), int((gaps > 0).sum()), p_value, len(gaps))


def _numbers(names: Sequence[Hashable], count: int) -> Int64[np.ndarray, " count"]:
    """Return for each name its number, 0, 1, … in the order in which distinct names first appear."""
    if len(names) != count:
        raise InvalidOption(f"{count} outcomes need as many clusters and strata, got {len(names)}")
    order = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([order[name] for name in names], np.int64)


def _flip_test(parts: Sequence[np.ndarray]) -> float:
    """Return how likely a mean of means so far from 0 is if every difference is as likely to have the other sign.

    That is Fisher's randomisation test, over all signs and not a sample of them: the distribution of the sum of those
    differences that are positive is built up one difference after the other. Of successes and failures it is the
    binomial test of McNemar, exactly; other differences are rounded to a grid.
    """
    weighed = np.concatenate([gaps / len(gaps) for gaps in parts])
    largest = np.abs(weighed).max()
    if not largest:
        return 1.0
    steps = np.rint(weighed / largest * _GRID).astype(np.int64)
    steps = steps[steps != 0] // np.gcd.reduce(steps)
    sizes = np.sort(np.abs(steps))
    chances = np.zeros(int(sizes.sum()) + 1)
    chances[0] = 1.0
    reach = 1
    for size in sizes.tolist():
        moved = chances[:reach].copy()
        reach += size
        chances[:reach] *= 0.5
        chances[size:reach] += 0.5 * moved
    distances = np.abs(2 * np.arange(reach) - (reach - 1))
    return float(min(1.0, chances[distances >= abs(int(steps.sum()))].sum()))


def _bootstrap(parts: Sequence[np.ndarray]) -> Interval:
    """Return percentiles of the mean of means, over conditions drawn with replacement within each part."""
    generator = np.random.default_rng(0)  # a table that is printed again must say the same
    drawn = np.zeros(_RESAMPLES)
    for gaps in parts:
        # Gaps have few distinct values: how often each is drawn is multinomial, which is fast for any number of gaps.
        values, counts = np.unique(gaps, return_counts=True)
        drawn += generator.multinomial(len(gaps), counts / len(gaps), _RESAMPLES) @ values / len(gaps)
    low, high = np.quantile(drawn / len(parts), [0.025, 0.975])
    return Interval(float(np.mean([gaps.mean() for gaps in parts])), float(low), float(high))


@dataclass(frozen=True)
class RankCorrelation:
    """Hold Spearman's rank correlation of pairs that are independent of each other."""

    rho: float
    pairs: int
    p_value: float
    """Two-sided: how often chance alone pairs the values so well or so badly."""

    def __str__(self) -> str:
        return f"ρ = {self.rho:+.2f} (n = {self.pairs}, p = {self.p_value:.2g})"


def spearman(first: Sequence[float], second: Sequence[float]) -> RankCorrelation:
    """Return how far one rises whenever the other does; equal values share their mean rank."""
    if len(first) != len(second) or len(first) < 3:
        raise InvalidOption(f"a rank correlation needs three pairs, got {len(first)} and {len(second)} values")
    one = _ranks(first)
    other = _ranks(second)
    shuffled = np.random.default_rng(0).permuted(np.tile(other, (_RESAMPLES, 1)), axis=1) @ one
    # The margin counts shuffles that are equal but for rounding; the ones added keep p above 0.
    extreme = int((np.abs(shuffled) >= abs(one @ other) - 1e-9).sum())
    return RankCorrelation(_correlation(one, other), len(first), (extreme + 1) / (_RESAMPLES + 1))


def clustered_spearman(
    first: Sequence[float], second: Sequence[float], clusters: Sequence[Hashable], resamples: int = 1000
) -> Interval:
    """Return the rank correlation of pairs that are alike within clusters, which are drawn with replacement.

    Few clusters bound nothing: below five, the interval is that of all correlations, [-1, 1].
    """
    values = np.array([first, second], float)
    numbers = _numbers(clusters, len(first))
    members = [np.flatnonzero(numbers == cluster) for cluster in range(int(numbers.max()) + 1)]
    estimate = _correlation(_ranks(values[0]), _ranks(values[1]))
    if len(members) < _FEW_CLUSTERS:
        return Interval(estimate, -1.0, 1.0)
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(resamples):
        rows = np.concatenate([members[cluster] for cluster in generator.integers(len(members), size=len(members))])
        drawn.append(_correlation(_ranks(values[0, rows]), _ranks(values[1, rows])))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(estimate, float(low), float(high))


def _ranks(values: Sequence[float] | Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """Return the ranks of values, from the smallest, less the mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return ranks[places] - (len(values) + 1) / 2


def _correlation(one: Float64[np.ndarray, " n"], other: Float64[np.ndarray, " n"]) -> float:
    """Return the correlation of centred values; 0 where one does not vary and so says nothing about the other."""
    scale = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / scale if scale else 0.0
