"""Helpers that all figures of a study share: their colours, their error bars, and where they are kept."""

from collections.abc import Sequence
from typing import Any

from oat.experiments.study.study import Study
from oat.io.pictures import save_figure
from oat.tables.interval import Interval
from oat.tables.table import PICTURE

COLORS = {
    "BC": "tab:purple",
    "DP": "tab:gray",
    "Bin": "tab:brown",
    "FAST": "tab:red",
    "QueST": "tab:orange",
    "OAT": "tab:blue",
}
"""The colour of each method in every figure."""


def color_of(label: str) -> str:
    """Return the colour of a table's row: variants such as OAT_4 and OAT× have their method's colour."""
    return next((color for name, color in COLORS.items() if label.startswith(name)), "tab:green")


def whiskers(rates: Sequence[Interval]) -> list[list[float]]:
    """Return the intervals of rates as matplotlib takes error bars: distances below and above, in percent."""
    below = [rate.estimate - rate.low for rate in rates]
    above = [rate.high - rate.estimate for rate in rates]
    # Rounding may leave a distance slightly negative, which matplotlib refuses.
    return [[max(0.0, 100 * distance) for distance in side] for side in (below, above)]


def save_study_figure(study: Study, name: str, figure: Any) -> str:
    """Write a figure to figures/NAME.png in the study's folder, and return the note that a table names it by."""
    save_figure(figure, study.folder / "figures" / f"{name}.png", dpi=130)
    return f"{PICTURE}figures/{name}.png"
