"""figure-modelability: what predicts success — error, bits under the policy, or tokens? (paper, sections I, IV-C, V-B)

The paper claims that reconstruction error alone does not, and that chunks which are unlikely need more tokens.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oat.errors import InvalidOption
from oat.evaluation.comparisons import compare_policies
from oat.evaluation.statistics import spearman
from oat.experiments.code_lengths import CodeLengths, measure_code_lengths
from oat.experiments.config import ExperimentName
from oat.experiments.pictures import color_of, new_figure, save_figure, whiskers
from oat.experiments.study.held_out import find_policy, read_measures
from oat.experiments.study.methods import (
    COMPARED,
    FLOW,
    FULL_REGISTERS,
    LEVEL_SETS,
    OAT,
    UNORDERED,
    UNORDERED_FULL_REGISTERS,
    Method,
    with_levels,
)
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import Row, absences, circumstances, not_run, read_rows
from oat.io.training_record import Measures
from oat.policies import AutoregressivePolicy
from oat.tables.interval import NOT_AVAILABLE, Interval, format_range, percent
from oat.tables.table import Table

NAME: ExperimentName = "figure-modelability"
_ALSO = (UNORDERED, FULL_REGISTERS, UNORDERED_FULL_REGISTERS, FLOW, *(with_levels(levels) for levels in LEVEL_SETS))
"""Further points, where other tables have run them."""


def evaluations(study: Study) -> list[EvaluationRun]:
    return study.evaluations(COMPARED)


@dataclass(frozen=True)
class Point:
    """A method at a number of tokens, with means over its training seeds; NaN where something has not been run."""

    row: Row
    variant: bool
    """Whether it is drawn small: many lie close together."""
    tokens: float
    mse: float
    bits: float
    """Of a held-out chunk's tokens under the policy: −log2 p."""
    open_loop: float
    """Mean squared difference between what the policy would do and what was demonstrated, in model space."""
    undecodable: float
    """Share of the policy's held-out chunks."""

    @property
    def success(self) -> Interval | None:
        return None if self.row.overall is None else self.row.overall.success


def tables(study: Study) -> list[Table]:
    points = [point for method in COMPARED for point in _points(study, method)]
    also = (point for method in _ALSO if method != OAT for point in _points(study, method))
    points += [point for point in also if point.success is not None]
    policy = find_policy(study, OAT)
    lengths = measure_code_lengths(study, policy) if isinstance(policy, AutoregressivePolicy) else None
    told = (*circumstances(study), _draw(study, points, lengths))
    return [_points_table(points, told), _lengths_table(lengths, told)]


def _points(study: Study, method: Method) -> Iterator[Point]:
    """One for each number of tokens that the method acts from."""
    variant = method not in (*COMPARED, UNORDERED)
    chosen = study.ablations((method,)) if variant else study.evaluations((method,))
    fitted = [read_measures(study, method.run("tokenizers", each.seed)) for each in chosen]
    trained = [read_measures(study, method.run("policies", each.seed)) for each in chosen]
    for row, prefix in zip(read_rows(study, chosen), method.prefixes or (None,), strict=True):
        yield Point(
            row,
            variant,
            _mean(_tokens(each, prefix) for each in fitted),
            _mean(_error(each, prefix) for each in fitted),
            _mean(_nll(each, prefix) for each in trained) / math.log(2),
            _mean(_error(each, prefix) for each in trained),
            _mean(math.nan if each.undecodable is None else each.undecodable for each in trained),
        )


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _tokens(measures: Measures, prefix: int | None) -> float:
    """Return the tokens per chunk."""
    return prefix or measures.tokens or max(measures.mse_of_prefix, default=math.nan)


def _error(measures: Measures, prefix: int | None) -> float:
    """Return the error of the tokenizer's reconstruction, or of the policy's prediction, in model space."""
    error = measures.error(prefix)
    return math.nan if error is None else error


def _nll(measures: Measures, prefix: int | None) -> float:
    """Return the negative log-likelihood of a chunk's tokens, or of the first of them."""
    if prefix is not None and measures.nll_of_token:
        return sum(measures.nll_of_token[place] for place in range(1, prefix + 1))
    return math.nan if measures.nll_of_chunk is None else measures.nll_of_chunk


_PREDICTORS: dict[str, Callable[[Point], float]] = {
    "reconstruction MSE": lambda point: point.mse,
    "bits per chunk under the policy": lambda point: point.bits,
    "tokens per chunk": lambda point: point.tokens,
    "open-loop MSE": lambda point: point.open_loop,
}


def _points_table(points: Sequence[Point], told: Sequence[str]) -> Table:
    columns = (
        *("policy", "steps", "tokens", "reconstruction MSE", "NLL, bits per chunk", "open-loop MSE"),
        *("success %", "95 %", "episodes"),
    )
    rows = tuple(
        (
            *(point.row.label, point.row.steps),
            *map(_number, (point.tokens, point.mse, point.bits, point.open_loop)),
            *((NOT_AVAILABLE, NOT_AVAILABLE) if point.success is None else percent(point.success)),
            f"{len(point.row.records):,}",
        )
        for point in points
    )
    acted = [point for point in points if point.success is not None]
    notes = [f"success and {name}: {_correlation(acted, value)}" for name, value in _PREDICTORS.items()]
    absent = not_run(absences(point.row for point in points))
    told = (*_reading(points), *notes, _counterexamples(acted), *absent, *told)
    return Table(f"{NAME}: error, bits, tokens and success", columns, rows, told)


def _reading(points: Sequence[Point]) -> Iterator[str]:
    """What the columns are."""
    yield "MSE and NLL: the checkpoints' own, on held-out chunks; means over training seeds"
    yield (
        "open-loop: of the likeliest tokens' chunk (DP: of a sampled one), which may differ from the demonstrated one "
        "and still be right"
    )
    for point in points:
        if point.undecodable > 0:
            decoded = f"{1 - point.undecodable:.0%} of held-out chunks, those that decode"
            yield f"{point.row.label}: open-loop error of {decoded}"
    yield "points of one method share their policies, so p is too small where there are several of them"


def _number(value: float) -> str:
    return NOT_AVAILABLE if math.isnan(value) else f"{value:.3g}"


def _correlation(points: Sequence[Point], value: Callable[[Point], float]) -> str:
    """Spearman's, with its n."""
    pairs = [(value(point), point.success.estimate) for point in points if point.success is not None]
    pairs = [pair for pair in pairs if not math.isnan(pair[0])]
    if len(pairs) < 3:
        return f"undecided, n = {len(pairs)}"
    return str(spearman([one for one, _ in pairs], [other for _, other in pairs]))


def _counterexamples(points: Sequence[Point]) -> str:
    """Whether a method with the smaller error acts worse than one with the larger, by paired tests."""
    claim, found = "claim: reconstruction error alone does not predict success", dict[str, list[str]]()
    pairs = [(one, other) for one in points for other in points if one.mse < other.mse]
    if not pairs:
        return f"{claim}: undecided, there are no two methods to compare"
    for one, other in pairs:
        try:
            result = compare_policies(one.row.records, other.row.records)
        except InvalidOption:  # nothing that both met
            continue
        if result.p_value < 0.05 / len(pairs) and result.only_second > result.only_first:
            found.setdefault(one.row.label, []).append(other.row.label)
    if found:
        told = (
            f"{worse} has a smaller error and acts worse than {', '.join(better)}" for worse, better in found.items()
        )
        return f"{claim}: held ({'; '.join(told)}; each at p < 0.05 / {len(pairs)} pairs)"
    return f"{claim}: undecided (in none of {len(pairs)} pairs the smaller error acts significantly worse)"


def _lengths_table(lengths: CodeLengths | None, told: Sequence[str]) -> Table:
    title = f"{NAME}: tokens that a chunk needs, and how unlikely it is"
    columns = ("tokens needed", "chunks", "mean −log2 p", "standard deviation")
    if lengths is None:
        return Table(title, columns, (), (*not_run(["OAT's policy"]), *told))
    rows = []
    for count in np.unique(lengths.tokens).tolist():
        bits = lengths.bits[lengths.tokens == count]
        rows.append((str(count), str(len(bits)), f"{bits.mean():.1f}", f"{bits.std():.1f}"))
    rho = lengths.correlation
    held = "held" if rho.low > 0 else "not held" if rho.high < 0 else "undecided"
    notes = (
        f"ρ = {rho.estimate:+.2f} (95 % {format_range(rho, '+.2f')}, resampling episodes; "
        f"n = {len(lengths.bits)} chunks of {len(set(lengths.episodes.tolist()))} held-out episodes)",
        f"tokens needed to keep the RMS error within {lengths.limit:.3g} action units, which half of the chunks keep "
        "with half of the tokens; those that never do count among the last",
        "p: of all tokens of the chunk, given the observation, under OAT's policy",
        f"claim: unlikely chunks need more tokens: {held}",
    )
    return Table(title, columns, tuple(rows), (*notes, *told))


def _draw(study: Study, points: Sequence[Point], lengths: CodeLengths | None) -> str:
    figure = new_figure(18, 4)
    panels = figure.subplots(1, len(_PREDICTORS) + 1)
    acted = [point for point in points if point.success is not None]
    for axes, (name, value) in zip(panels, _PREDICTORS.items(), strict=False):
        for number, point in enumerate(acted):
            assert point.success is not None
            x, y = value(point), 100 * point.success.estimate
            if math.isnan(x):
                continue
            if point.variant:
                axes.plot(x, y, marker=".", color=color_of(point.row.label), alpha=0.5)
                continue
            axes.errorbar(
                x, y, whiskers([point.success]), marker="o", capsize=2, color=color_of(point.row.label), alpha=0.8
            )
            place, side = ((5, 3), "left") if number % 2 else ((-5, 3), "right")  # neighbours are often close
            axes.annotate(point.row.label, (x, y), xytext=place, textcoords="offset points", fontsize=7, ha=side)
        axes.set(xlabel=name, xscale="log", ylim=(-2, None))
        axes.margins(x=0.15)
        axes.set_title(f"success: {_correlation(acted, value)}", fontsize=9)
    panels[0].set_ylabel("success, %" + " (dots: variants of OAT)" * any(point.variant for point in acted))
    _draw_lengths(panels[-1], lengths)
    return save_figure(study, NAME, figure)


def _draw_lengths(axes: Any, lengths: CodeLengths | None) -> None:
    axes.set(title="OAT: not run", xlabel="tokens needed", ylabel="−log2 p of the chunk")
    if lengths is None:
        return
    counts = np.unique(lengths.tokens).tolist()
    axes.boxplot([lengths.bits[lengths.tokens == count] for count in counts], positions=counts, showfliers=False)
    rho = lengths.correlation
    axes.set_title(f"OAT: ρ = {rho.estimate:+.2f} ({format_range(rho, '+.2f')})", fontsize=9)
