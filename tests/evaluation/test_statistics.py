"""Intervals cover what they claim to, and paired tests know when they know."""

import math

import numpy as np
import pytest

from oat.errors import InvalidOption
from oat.evaluation.statistics import (
    clustered_spearman,
    compare_often,
    compare_paired,
    mean_and_standard_error,
    spearman,
    success_rate,
    wilson,
)


def test_wilson_against_published_values() -> None:
    """Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    for successes, trials, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        interval = wilson(successes, trials)
        assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.93])
def test_intervals_cover_the_true_rate(rate: float) -> None:
    generator = np.random.default_rng(0)
    counts = generator.binomial(50, rate, 4000)
    covered = np.mean([wilson(int(c), 50).low <= rate <= wilson(int(c), 50).high for c in counts])
    assert 0.92 < covered < 0.98


def test_repeats_of_a_condition_do_not_narrow_the_interval() -> None:
    """Ten conditions that always end alike are ten observations, however often they are repeated."""
    outcomes = [condition < 6 for condition in range(10) for _ in range(20)]
    clusters = [condition for condition in range(10) for _ in range(20)]
    clustered, naive, ten = success_rate(outcomes, clusters), success_rate(outcomes), wilson(6, 10)
    assert clustered.estimate == naive.estimate == 0.6
    assert naive.high - naive.low < 0.5 * (clustered.high - clustered.low)
    assert clustered.high - clustered.low == pytest.approx(ten.high - ten.low, rel=0.1)
    independent = success_rate([True, False] * 50, list(range(100)))
    assert independent == wilson(50, 100)


def test_tasks_count_alike_however_many_episodes_they_have() -> None:
    outcomes, tasks = [True] * 90 + [True, False] * 5, ["easy"] * 90 + ["hard"] * 10
    pooled = success_rate(outcomes, strata=tasks)
    assert pooled.estimate == 0.75
    assert pooled.high - pooled.low > 1.5 * (wilson(75, 100).high - wilson(75, 100).low)  # ten episodes decide it
    balanced = success_rate([True, False] * 20, strata=["a", "b"] * 20)
    assert balanced == wilson(20, 40)  # never narrower than for as many episodes of one task
    gain = compare_paired([False] * 100, [True] * 90 + [False] * 10, strata=tasks)
    assert gain.difference.estimate == 0.5
    assert (gain.only_first, gain.only_second) == (0, 90)


def test_pooled_intervals_cover_the_true_rate() -> None:
    generator, covered = np.random.default_rng(3), []
    rates, counts = (0.2, 0.9, 0.6), (60, 20, 30)
    tasks = np.repeat(np.arange(3), counts).tolist()
    for _ in range(600):
        drawn = np.concatenate([generator.random(n) < rate for rate, n in zip(rates, counts, strict=True)])
        interval = success_rate(drawn.tolist(), strata=tasks)
        covered.append(interval.low <= np.mean(rates) <= interval.high)
    assert 0.92 < np.mean(covered) < 0.995


def test_clustered_intervals_cover_the_true_rate() -> None:
    generator, covered = np.random.default_rng(1), []
    for _ in range(600):
        chances = generator.beta(1, 1, 25)
        outcomes = (generator.random((25, 8)) < chances[:, None]).astype(float).ravel().tolist()
        interval = success_rate(outcomes, np.repeat(np.arange(25), 8).tolist())
        covered.append(interval.low <= 0.5 <= interval.high)
    assert 0.91 < np.mean(covered) < 0.99


def test_paired_comparisons() -> None:
    first = [False] * 12 + [True] * 30 + [False] * 2
    second = [True] * 12 + [True] * 30 + [False] * 2
    found = compare_paired(first, second)
    assert (found.only_first, found.only_second) == (0, 12)
    assert found.p_value == pytest.approx(2 / 2**12)
    assert found.verdict == "second"
    assert compare_paired(second, first).verdict == "first"
    assert found.difference.low > 0.1
    assert compare_paired(first, first).p_value == 1
    assert compare_paired(first, first).verdict == "undecided"
    assert compare_paired([True, False], [False, True]).p_value == 1
    assert compare_paired([False], [True]).verdict == "undecided"
    assert compare_paired([0.5, 0.2], [0.5, 0.4]).difference.estimate == pytest.approx(0.1)


def test_scores_are_compared_by_their_mean() -> None:
    """A few large losses outweigh many small gains, and p speaks of the same difference as the interval."""
    first = [0.5] * 40
    second = [0.51] * 30 + [0.0] * 10
    found = compare_paired(first, second)
    assert (found.only_first, found.only_second) == (10, 30)
    assert found.difference.high < 0
    assert found.verdict == "first"
    assert found.p_value < 0.01
    assert compare_often(first, second).verdict == "second"


def test_all_signs_are_counted() -> None:
    """By hand: of the eight signs of 1, 2 and 4, one gives +7 and one −7; of 3, 3 and 3 as many."""
    assert compare_paired([0.0] * 3, [0.1, 0.2, 0.4]).p_value == pytest.approx(2 / 8)
    assert compare_paired([0.0] * 3, [0.3, 0.3, 0.3]).p_value == pytest.approx(2 / 8)
    assert compare_paired([0.0] * 3, [-0.1, 0.2, 0.4]).p_value == pytest.approx(4 / 8)  # ±5 and ±7
    tasks = ["short"] * 2 + ["long"] * 4  # each of the short one's counts twice
    assert compare_paired([0.0] * 6, [1.0, 1.0, 0.0, 0.0, 0.0, -1.0], tasks).p_value == pytest.approx(4 / 8)


def test_means_that_do_not_differ_are_seldom_told_apart() -> None:
    generator = np.random.default_rng(4)
    scores = generator.beta(2, 1, (150, 2, 20))
    alarms = [compare_paired(a.tolist(), b.tolist()).p_value < 0.05 for a, b in scores]
    assert 0.01 < np.mean(alarms) < 0.09


def test_false_alarms_are_rare() -> None:
    generator = np.random.default_rng(2)
    pairs = generator.random((1000, 2, 40)) < 0.6
    alarms = [compare_paired(a.tolist(), b.tolist()).p_value < 0.05 for a, b in pairs[:300]]
    assert np.mean(alarms) < 0.06


def test_mean_and_standard_error() -> None:
    assert mean_and_standard_error([1.0, 3.0]) == (2.0, 1.0)
    assert math.isnan(mean_and_standard_error([0.4])[1])


def test_rank_correlation() -> None:
    """By hand: of 1 2 3 4 5 and 2 1 4 3 5, 1 − 6 · 4 / 120; ties share ranks; what does not vary says nothing."""
    assert spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]).rho == pytest.approx(0.8)
    assert spearman([1, 2, 2, 9], [3, 5, 5, 100]).rho == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [7, 7, 7, 7]).p_value == 1
    falling = spearman(range(7), [-(x**3) for x in range(7)])
    assert falling.rho == pytest.approx(-1)
    assert falling.pairs == 7
    assert falling.p_value < 0.01  # 2 of 5,040 orders are so extreme
    assert spearman([1, 2, 3], [1, 2, 3]).p_value == pytest.approx(1 / 3, abs=0.02)


def test_clusters_widen_a_rank_correlation() -> None:
    """Ten noisy copies of each of twelve independent pairs are little more than twelve pairs."""
    random = np.random.default_rng(3)
    pairs = np.repeat(random.normal(size=(12, 2)), 10, axis=0) + 0.01 * random.normal(size=(120, 2))
    first, second = pairs[:, 0].tolist(), pairs[:, 1].tolist()
    apart = clustered_spearman(first, second, range(120))
    together = clustered_spearman(first, second, np.repeat(np.arange(12), 10).tolist())
    assert together.high - together.low > 2 * (apart.high - apart.low)
    assert together.low < together.estimate < together.high
    few = clustered_spearman(first, second, [0, 1] * 60)
    assert (few.low, few.high) == (-1, 1)


def test_mistakes_are_named() -> None:
    for call in (
        lambda: wilson(3, 0),
        lambda: wilson(5, 4),
        lambda: compare_paired([True], [True, False]),
        lambda: compare_paired([], []),
        lambda: success_rate([True, False], [0]),
        lambda: success_rate([True, False], strata=["a"]),
        lambda: success_rate([]),
        lambda: mean_and_standard_error([]),
        lambda: spearman([1, 2], [1, 2]),
        lambda: spearman([1, 2, 3], [1, 2]),
    ):
        with pytest.raises(InvalidOption):
            call()
