"""What all figures have in common: their look, and where they are kept."""

from collections.abc import Sequence
from typing import Any

from oat.experiments.study.study import Study
from oat.io.atomic import staged_file
from oat.io.extras import import_extra
from oat.tables.interval import Interval
from oat.tables.table import PICTURE

COLORS = {"DP": "tab:gray", "Bin": "tab:brown", "FAST": "tab:red", "QueST": "tab:orange", "OAT": "tab:blue"}
"""Of the methods, wherever they appear."""


def color_of(label: str) -> str:
    """The colour of a table's row: OAT_4 and OAT× are shades of the same idea."""
    return next((color for name, color in COLORS.items() if label.startswith(name)), "tab:green")


def whiskers(rates: Sequence[Interval]) -> list[list[float]]:
    """The intervals of rates as matplotlib wants them, in percent."""
    below, above = ([r.estimate - r.low for r in rates], [r.high - r.estimate for r in rates])
    return [[max(0.0, 100 * each) for each in side] for side in (below, above)]  # rounding may go below 0


def new_figure(width: float, height: float) -> Any:
    """An empty figure of this size in inches."""
    import_extra("matplotlib", "report").use("Agg")
    return import_extra("matplotlib.figure", "report").Figure(figsize=(width, height), layout="constrained")


def save_figure(study: Study, name: str, figure: Any) -> str:
    """Keep it as figures/NAME.png; gives the note that says so."""
    with staged_file(study.folder / "figures" / f"{name}.png") as staging:
        figure.savefig(staging, dpi=130)
    return f"{PICTURE}figures/{name}.png"
