"""figure-learning: does the order of methods change with training? (our own; the paper trains for one budget)

Every method is trained anew for each number of minutes, with a schedule that ends there. The study's own minutes are
those of the other tables, whose runs are shared.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from oat.evaluation.claims import Claim
from oat.experiments.config import ScaleName
from oat.experiments.pictures import color_of, save_study_figure, whiskers
from oat.experiments.study.methods import BC, DP, OAT, QUEST, UNORDERED, Method, with_minutes
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import Row, absences, circumstances, not_run, read_rows, study_table
from oat.io.pictures import new_figure
from oat.tables.interval import format_percent_range
from oat.tables.table import Table

NAME = "figure-learning"
_MINUTES: dict[ScaleName, Sequence[float]] = {
    "smoke": (0.005, 0.01),
    "cpu": (4, 12, 36, 108),
    "paper": (4, 12, 36, 108),
}
_METHODS = (BC, DP, QUEST, UNORDERED, OAT)
_LABELS = tuple(method.label(max(method.prefixes, default=None)) for method in _METHODS)
_BEST = _LABELS[-1]
_APART = 1.03  # points of one budget are drawn beside each other by this factor, so that their intervals can be seen


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return every method with each number of minutes that is asked for, the smallest first."""
    return [
        evaluation
        for minutes in sorted(study.budgets or _MINUTES[study.scale.name])
        for method in _METHODS
        for evaluation in _evaluations(study, method, minutes)
    ]


def tables(study: Study) -> list[Table]:
    """Draw success against minutes, and return it as a table of the order of methods and as one of every training."""
    budgets = sorted({*_MINUTES[study.scale.name], *study.budgets})
    rows = {minutes: [_row(study, method, minutes) for method in _METHODS] for minutes in budgets}
    every = [row for group in rows.values() for row in group]
    picture = _draw(study, rows)
    title = f"{NAME}: every training, success in %"
    trainings = study_table(study, title, every, claims=[*_claims_of_order(rows), *_claims_of_learning(rows)])
    return [_order_table(study, rows, picture), replace(trainings, notes=(*trainings.notes, picture))]


def _evaluations(study: Study, method: Method, minutes: float) -> list[EvaluationRun]:
    """Return the evaluations of a method after so many minutes: where these are the study's own, the usual ones."""
    return study.ablations([method if minutes == study.minutes else with_minutes(method, minutes)])


def _row(study: Study, method: Method, minutes: float) -> Row:
    """Return the row of a method after so many minutes, acting from all tokens."""
    # The last row: the usual evaluation of OAT is from fewer tokens, too, and those rows come first.
    found = read_rows(study, _evaluations(study, method, minutes))[-1]
    return replace(found, label=_label(_LABELS[_METHODS.index(method)], minutes), minutes=minutes)


def _label(label: str, minutes: float) -> str:
    return f"{label}, {minutes:g} min"


def _claims_of_order(rows: dict[float, list[Row]]) -> list[Claim]:
    """Return a claim for each rival and number of minutes that anything was trained for."""
    return [
        (
            f"{_BEST} acts better than {rival} after {minutes:g} minutes",
            (_label(rival, minutes), _label(_BEST, minutes)),
        )
        for minutes, group in rows.items()
        for rival in _LABELS[:-1]
        if any(row.records for row in group)
    ]


def _claims_of_learning(rows: dict[float, list[Row]]) -> list[Claim]:
    """Return for each method the claim that it acts better the longer it is trained, as far as it was."""
    trained = {
        label: [group[place].label for group in rows.values() if group[place].records]
        for place, label in enumerate(_LABELS)
    }
    return [(f"{label} acts better after more minutes", chain) for label, chain in trained.items() if len(chain) > 1]


def _order_table(study: Study, rows: dict[float, list[Row]], picture: str) -> Table:
    """Return a line for each number of minutes: the success of every method, and their order."""
    cells = tuple((f"{minutes:g}", *map(_cell, group), _order(group)) for minutes, group in rows.items())
    notes = (
        *circumstances(study, rows),
        *not_run(absences(row for group in rows.values() for row in group)),
        "order: of the estimates, best first; which differences are more than chance, the claims below say",
        picture,
    )
    title = f"{NAME}: success in % after so many minutes of training, with 95 % intervals"
    return Table(title, ("minutes", *_LABELS, "order"), cells, notes)


def _cell(row: Row) -> str:
    if row.overall is None:
        return "not run"
    rate = row.overall.success
    return f"{100 * rate.estimate:.1f} ({format_percent_range(rate)})"


def _order(group: Sequence[Row]) -> str:
    """Return the methods that were run, best first, with = between those that succeed equally often."""
    known = [
        (label, row.overall.success.estimate)
        for label, row in zip(_LABELS, group, strict=True)
        if row.overall is not None
    ]
    ranked = sorted(known, key=lambda each: -each[1])
    told = [label for label, _ in ranked[:1]]
    for (_, better), (label, rate) in pairwise(ranked):
        told.append(f"{'=' if rate == better else '>'} {label}")
    return " ".join(told) or "not run"


def _draw(study: Study, rows: dict[float, list[Row]]) -> str:
    """Draw a curve for each method over a logarithmic axis of minutes, as far as it was run."""
    figure = new_figure(6.5, 4.2)
    axes = figure.subplots()
    for place, label in enumerate(_LABELS):
        found = [(minutes, group[place].overall) for minutes, group in rows.items()]
        points = [(minutes, overall.success) for minutes, overall in found if overall is not None]
        axes.errorbar(
            [minutes * _APART ** (place - len(_LABELS) // 2) for minutes, _ in points],
            [100 * rate.estimate for _, rate in points],
            yerr=whiskers([rate for _, rate in points]),
            color=color_of(label),
            linestyle="--" if _METHODS[place] is UNORDERED else "-",  # it has the colour of OAT
            marker="o",
            capsize=3,
            label=label if points else f"{label}: not run",
        )
    axes.set_xscale("log")
    axes.set_xticks(list(rows), [f"{minutes:g}" for minutes in rows])
    axes.minorticks_off()
    axes.set(xlabel="minutes of training on one thread", ylabel="success, %", ylim=(-2, 102))
    axes.set_title(f"success on {study.sim} against training, with 95 % intervals", fontsize=10)
    axes.legend(fontsize=8)
    return save_study_figure(study, NAME, figure)
