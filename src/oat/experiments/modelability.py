"""figure-modelability: do error, bits under the policy, or tokens predict success? (paper, sections I, IV-C, V-B)

The paper claims that reconstruction error alone does not, and that chunks which are unlikely need more tokens.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oat.errors import InvalidOption
from oat.evaluation.comparisons import compare_policies
from oat.evaluation.statistics import spearman
from oat.experiments.code_lengths import CodeLengths, measure_code_lengths
from oat.experiments.method_points import MethodPoint, read_points
from oat.experiments.pictures import color_of, save_study_figure, whiskers
from oat.experiments.study.held_out import find_policy
from oat.experiments.study.methods import (
    COMPARED,
    FLOW,
    FULL_REGISTERS,
    LEVEL_SETS,
    OAT,
    UNORDERED,
    UNORDERED_FULL_REGISTERS,
    with_levels,
)
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import absences, circumstances, not_run
from oat.io.pictures import new_figure
from oat.policies import AutoregressivePolicy
from oat.tables.interval import NOT_AVAILABLE, format_range, percent
from oat.tables.table import Table
from oat.tokenizers.stability import NOISE

NAME = "figure-modelability"
_VARIANTS = (UNORDERED, FULL_REGISTERS, UNORDERED_FULL_REGISTERS, FLOW, *(with_levels(levels) for levels in LEVEL_SETS))
"""Methods whose points are drawn as well, where other tables have run them."""


@dataclass(frozen=True)
class Predictor:
    """Describe a number of each method that may tell how well its policy acts."""

    name: str
    value: Callable[[MethodPoint], float]
    scale: str = "log"
    """Scale of its axis: errors, bits and tokens span orders of magnitude."""


_PREDICTORS = (
    Predictor("reconstruction MSE", lambda point: point.mse),
    Predictor("bits per chunk under the policy", lambda point: point.bits),
    Predictor("tokens per chunk", lambda point: point.tokens),
    Predictor("tokens that change in one step, %", lambda point: 100 * point.shifted, "linear"),
    Predictor("open-loop MSE", lambda point: point.open_loop),
)


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: every method that table-sim compares."""
    return study.evaluations(COMPARED)


def tables(study: Study) -> list[Table]:
    """Collect and draw what there is, and return the tables of methods and of code lengths."""
    points = [point for method in COMPARED for point in read_points(study, method)]
    # Variants are drawn where other tables have run them; nothing is run for this figure alone.
    variants = (point for method in _VARIANTS if method != OAT for point in read_points(study, method))
    points += [point for point in variants if point.success is not None]
    policy = find_policy(study, OAT)
    lengths = measure_code_lengths(study, policy) if isinstance(policy, AutoregressivePolicy) else None
    notes = (*circumstances(study), _draw(study, points, lengths))
    return [_points_table(points, notes), _lengths_table(lengths, notes)]


def _points_table(points: Sequence[MethodPoint], notes: Sequence[str]) -> Table:
    columns = (
        *("policy", "steps", "tokens", "reconstruction MSE", "NLL, bits per chunk", "open-loop MSE"),
        *("changed in one step, %", "changed by noise, %", "success %", "95 %", "episodes"),
    )
    rows = tuple(
        (
            *(point.row.label, point.row.steps),
            *map(_number, (point.tokens, point.mse, point.bits, point.open_loop)),
            *map(_number, (100 * point.shifted, 100 * point.noised)),
            *((NOT_AVAILABLE, NOT_AVAILABLE) if point.success is None else percent(point.success)),
            f"{len(point.row.records):,}",
        )
        for point in points
    )
    acted = [point for point in points if point.success is not None]
    correlations = [f"success and {each.name}: {_correlation(acted, each.value)}" for each in _PREDICTORS]
    absent = not_run(absences(point.row for point in points))
    all_notes = (*_reading(points), *correlations, _counterexamples(acted), *absent, *notes)
    return Table(f"{NAME}: error, bits, tokens and success", columns, rows, all_notes)


def _reading(points: Sequence[MethodPoint]) -> Iterator[str]:
    """Yield the notes that explain the columns."""
    yield "MSE and NLL: the checkpoints' own, on held-out chunks; means over training seeds"
    yield (
        "open-loop: of the likeliest tokens' chunk (DP: of a sampled one), which may differ from the demonstrated one "
        "and still be right"
    )
    yield (
        "changed: tokens that differ where a held-out chunk begins one step later, or has noise of deviation "
        f"{NOISE:g} in model space"
    )
    for point in points:
        if point.undecodable > 0:
            decoded = f"{1 - point.undecodable:.0%} of held-out chunks, those that decode"
            yield f"{point.row.label}: open-loop error of {decoded}"
    yield "points of one method share their policies, so p is too small where there are several of them"


def _number(value: float) -> str:
    return NOT_AVAILABLE if math.isnan(value) else f"{value:.3g}"


def _correlation(points: Sequence[MethodPoint], value: Callable[[MethodPoint], float]) -> str:
    """Say Spearman's correlation of success and a value, with the number of points that it is over."""
    pairs = [(value(point), point.success.estimate) for point in points if point.success is not None]
    pairs = [pair for pair in pairs if not math.isnan(pair[0])]
    # The ranks of two points always agree or disagree completely.
    if len(pairs) < 3:
        return f"undecided, n = {len(pairs)}"
    return str(spearman([one for one, _ in pairs], [other for _, other in pairs]))


def _counterexamples(points: Sequence[MethodPoint]) -> str:
    """Say whether any method with the smaller error acts worse than one with the larger, by paired tests."""
    claim = "claim: reconstruction error alone does not predict success"
    better_than: dict[str, list[str]] = {}
    pairs = [(one, other) for one in points for other in points if one.mse < other.mse]
    if not pairs:
        return f"{claim}: undecided, there are no two methods to compare"
    for one, other in pairs:
        try:
            result = compare_policies(one.row.records, other.row.records)
        except InvalidOption:  # nothing that both met
            continue
        # Bonferroni: of many pairs, some would differ by chance.
        if result.p_value < 0.05 / len(pairs) and result.difference.estimate > 0:
            better_than.setdefault(one.row.label, []).append(other.row.label)
    if better_than:
        examples = (
            f"{worse} has a smaller error and acts worse than {', '.join(better)}"
            for worse, better in better_than.items()
        )
        return f"{claim}: held ({'; '.join(examples)}; each at p < 0.05 / {len(pairs)} pairs)"
    return f"{claim}: undecided (in none of {len(pairs)} pairs the smaller error acts significantly worse)"


def _lengths_table(lengths: CodeLengths | None, notes: Sequence[str]) -> Table:
    title = f"{NAME}: tokens that a chunk needs, and how unlikely it is"
    columns = ("tokens needed", "chunks", "mean −log2 p", "standard deviation")
    if lengths is None:
        return Table(title, columns, (), (*not_run(["OAT's policy"]), *notes))
    rows = []
    for count in np.unique(lengths.tokens).tolist():
        bits = lengths.bits[lengths.tokens == count]
        rows.append((str(count), str(len(bits)), f"{bits.mean():.1f}", f"{bits.std():.1f}"))
    rho = lengths.correlation
    held = "held" if rho.low > 0 else "not held" if rho.high < 0 else "undecided"
    reading = (
        f"ρ = {rho.estimate:+.2f} (95 % {format_range(rho, '+.2f')}, resampling episodes; "
        f"n = {len(lengths.bits)} chunks of {len(set(lengths.episodes.tolist()))} held-out episodes)",
        f"tokens needed to keep the RMS error within {lengths.limit:.3g} action units, which half of the chunks keep "
        "with half of the tokens; those that never do count among the last",
        "p: of all tokens of the chunk, given the observation, under OAT's policy",
        f"claim: unlikely chunks need more tokens: {held}",
    )
    return Table(title, columns, tuple(rows), (*reading, *notes))


def _draw(study: Study, points: Sequence[MethodPoint], lengths: CodeLengths | None) -> str:
    """Draw success against every predictor, and the code lengths of chunks."""
    figure = new_figure(22, 4)
    panels = figure.subplots(1, len(_PREDICTORS) + 1)
    acted = [point for point in points if point.success is not None]
    for axes, each in zip(panels, _PREDICTORS, strict=False):
        for number, point in enumerate(acted):
            _draw_point(axes, point, each.value(point), label_left=number % 2 == 0)
        # Below 0 there is room for the markers of methods that fail.
        axes.set(xlabel=each.name, xscale=each.scale, ylim=(-2, None))
        axes.margins(x=0.15)
        axes.set_title(f"success: {_correlation(acted, each.value)}", fontsize=9)
    has_variants = any(point.variant for point in acted)
    panels[0].set_ylabel("success, % (dots: variants of OAT)" if has_variants else "success, %")
    _draw_lengths(panels[-1], lengths)
    return save_study_figure(study, NAME, figure)


def _draw_point(axes: Any, point: MethodPoint, x: float, *, label_left: bool) -> None:
    """Draw one method, if its value is known; labels change sides because neighbours are often close."""
    assert point.success is not None
    if math.isnan(x):
        return
    y = 100 * point.success.estimate
    color = color_of(point.row.label)
    if point.variant:
        axes.plot(x, y, marker=".", color=color, alpha=0.5)
        return
    axes.errorbar(x, y, whiskers([point.success]), marker="o", capsize=2, color=color, alpha=0.8)
    offset = (-5, 3) if label_left else (5, 3)
    side = "right" if label_left else "left"
    axes.annotate(point.row.label, (x, y), xytext=offset, textcoords="offset points", fontsize=7, ha=side)


def _draw_lengths(axes: Any, lengths: CodeLengths | None) -> None:
    axes.set(title="OAT: not run", xlabel="tokens needed", ylabel="−log2 p of the chunk")
    if lengths is None:
        return
    counts = np.unique(lengths.tokens).tolist()
    axes.boxplot([lengths.bits[lengths.tokens == count] for count in counts], positions=counts, showfliers=False)
    rho = lengths.correlation
    axes.set_title(f"OAT: ρ = {rho.estimate:+.2f} ({format_range(rho, '+.2f')})", fontsize=9)
