"""The section with training curves: one figure, whose measure the reader chooses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from oat.report.curves import RUN_GROUPS, Curve
from oat.report.page_data import PageData
from oat.report.plots import Colours, Trace, first_of_its_name, log_axis, plot_text
from oat.report.results_folder import method_of
from oat.report.sections.section import Section

_FEW_POINTS = 30  # so few are marked one by one


@dataclass(frozen=True)
class MeasurePlot:
    """Hold one measure of all runs of one group as Plotly takes it."""

    group: str
    measure: str
    data: list[Trace]
    layout: dict[str, Any]


@dataclass(frozen=True)
class TrainingSection(Section):
    """Show the measure that the reader chooses, of all runs that logged it."""

    template: ClassVar[str] = "training.html"
    plots: Sequence[MeasurePlot] = ()

    def choices(self) -> dict[str, list[tuple[int, str]]]:
        """Return the measures of every group, each with its place among all plots."""
        choices: dict[str, list[tuple[int, str]]] = {}
        for place, plot in enumerate(self.plots):
            choices.setdefault(plot.group, []).append((place, plot.measure))
        return choices

    def payload(self) -> dict[str, Any]:
        """Return traces and layout of every plot."""
        return {"training": [(plot.data, plot.layout) for plot in self.plots]}


def training_section(data: PageData, colours: Colours) -> Section | None:
    """Show what the runs logged while they trained."""
    if not data.curves:
        return None
    curves: dict[tuple[str, str], list[Curve]] = {}
    for curve in sorted(data.curves, key=_order):
        curves.setdefault((curve.group, curve.measure), []).append(curve)
    plots = [_plot(group, measure, drawn, colours) for (group, measure), drawn in curves.items()]
    return TrainingSection("training", "Training", "What the runs logged, step by step.", plots=plots)


def _order(curve: Curve) -> tuple[int, bool, bool, int, str]:
    """Sort the loss first, then other measures of training, then those of validation; mse_2 before mse_10."""
    stem, _, last = curve.measure.rpartition("_")
    return (
        RUN_GROUPS.index(curve.group),
        curve.measure != "loss",
        curve.measure.startswith("validation/"),
        int(last) if last.isdigit() else 0,
        stem or curve.measure,
    )


def _plot(group: str, measure: str, curves: Sequence[Curve], colours: Colours) -> MeasurePlot:
    traces: list[Trace] = []
    for curve in curves:
        trace = _trace(curve, colours[method_of(curve.run)])
        trace["showlegend"] = first_of_its_name(trace, traces)
        traces.append(trace)
    values = [value for curve in curves for value in curve.values]
    # A measure that reaches zero, or is negative, has no logarithm.
    axis = log_axis(measure, values) if min(values) > 0 else {"title": {"text": measure}}
    layout = {"xaxis": {"title": {"text": "step"}, "rangemode": "tozero"}, "yaxis": axis}
    return MeasurePlot(group, measure, traces, layout)


def _trace(curve: Curve, colour: str) -> Trace:
    method = plot_text(method_of(curve.run))
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(curve.steps) < _FEW_POINTS else "lines",
        "name": method,
        "legendgroup": method,
        "x": curve.steps,
        "y": curve.values,
        "hovertemplate": f"{plot_text(curve.run)}, step %{{x}}: %{{y:.3g}}<extra></extra>",
        "line": {"color": colour, "width": 2},
        "marker": {"size": 5},
    }
