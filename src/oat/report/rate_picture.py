"""Draw rate–distortion curves: errors against the bits that ids hold, and beside them the bits that they are given."""

from collections.abc import Sequence
from typing import Any

from oat.io.extras import import_extra
from oat.report.rate_distortion import RateCurve

INK = "#1d2026"
SOFT = "#6b727b"
_COLOURS = ("#2563c9", "#d9480f", "#2b8a3e", "#862e9c", "#0b7285", "#c2255c", "#5c940d")
_GRID = "#ece9e4"
_SETTING_NAMES = {"FAST": "scale", "Bin": "bins"}


def draw_rates(axes: Any, curves: Sequence[RateCurve], sentence: str) -> None:
    """Draw every curve over the entropy of its ids, and faintly over the logarithm of its vocabulary."""
    for number, curve in enumerate(curve for curve in curves if curve.points):
        _draw_curve(axes, curve, _COLOURS[number % len(_COLOURS)], own=number == 0)
    axes.set(xscale="log", yscale="log", xlabel="bits per chunk", ylabel="mean squared error, model space")
    axes.set_title("Error against bits", loc="left", fontsize=13, fontweight="bold", color=INK, pad=26)
    axes.text(0, 1.02, sentence, transform=axes.transAxes, fontsize=9, color=SOFT, va="bottom", wrap=True)
    axes.text(
        0.99,
        0.98,
        "lines: entropy of the ids\ndots: log₂ of the vocabulary",
        transform=axes.transAxes,
        fontsize=8,
        color=SOFT,
        ha="right",
        va="top",
    )
    axes.margins(x=0.12, y=0.1)
    ticker = import_extra("matplotlib.ticker", "report")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda bits, _: f"{bits:g}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    quieten(axes)


def _draw_curve(axes: Any, curve: RateCurve, colour: str, own: bool) -> None:
    entropy = [point.entropy for point in curve.points]
    errors = [point.mse for point in curve.points]
    axes.plot(entropy, errors, color=colour, linewidth=2.6 if own else 1.6, marker="o", markersize=6 if own else 4)
    given = [point.bits for point in curve.points]
    axes.plot(given, errors, color=colour, linewidth=1, linestyle=":", marker=".", markersize=4, alpha=0.45)
    for point in (curve.points[0], curve.points[-1]) if len(curve.points) > 1 else curve.points:
        setting = _SETTING_NAMES.get(curve.name, "K =")
        axes.annotate(
            f"{setting} {point.label}",
            (point.entropy, point.mse),
            textcoords="offset points",
            xytext=(-6, -4),
            ha="right",
            va="top",
            fontsize=8,
            color=colour,
        )
    middle = curve.points[len(curve.points) // 2]
    axes.annotate(
        curve.name,
        (middle.entropy, middle.mse),
        textcoords="offset points",
        xytext=(8, 6),
        fontsize=10,
        fontweight="bold",
        color=colour,
    )


def quieten(axes: Any) -> None:
    """Leave of the frame only what is needed: a faint grid, and no box."""
    axes.grid(visible=True, which="major", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=SOFT, which="both", length=0, labelsize=9)
    axes.xaxis.label.set_color(SOFT)
    axes.yaxis.label.set_color(SOFT)
    for side in axes.spines.values():
        side.set_visible(False)
