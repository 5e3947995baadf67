"""Describe figures as Plotly takes them: traces and a layout. Fonts, grid and background are the page's."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Colours = Mapping[str, str]
"""Colours by the names of methods."""
Trace = dict[str, Any]
"""One line, or one group of marks, as Plotly takes it."""

# Dark enough for white paper, bright enough for a dark screen: at least 3 : 1 on both.
_COLOURS = (
    "#3b82f6",
    "#d9730d",
    "#0d9668",
    "#e0457b",
    "#8b5cf6",
    "#0891b2",
    "#a3761b",
    "#dc4a3d",
    "#5f7f1c",
    "#78716c",
)
STRIP_MARGIN = {"l": 56, "r": 16, "t": 8}
"""Margins of a plot below frames, which the style sheet gives to the frames, too."""
_DECADES = [10.0**power for power in range(-12, 7)]
_ALL_TICKS = [part * decade for decade in _DECADES for part in range(1, 10)]
_MOST_TICKS = 9
ROUND_TICKS = [part * decade for decade in _DECADES for part in (1, 2, 5)]
DOUBLING_TICKS = [2.0**power for power in range(14)]


@dataclass(frozen=True)
class Figure:
    """Hold one plot with the words around it."""

    name: str
    """The element's id, unique on the page."""
    title: str
    caption: str
    data: list[Trace]
    layout: dict[str, Any]
    height: int = 360
    frames: Sequence[str] = ()
    """Pictures above the plot, which cover equal parts of its x axis, as data: addresses."""


def choose_colours(methods: Iterable[str]) -> dict[str, str]:
    """Give every method one colour for all figures; ten differ, then they repeat."""
    distinct = dict.fromkeys(methods)
    return {method: _COLOURS[number % len(_COLOURS)] for number, method in enumerate(distinct)}


def plot_text(text: str) -> str:
    """Escape a text for Plotly, which takes tags in labels for markup."""
    return html.escape(text, quote=False)


def first_of_its_name(trace: Trace, earlier: Sequence[Trace]) -> bool:
    """Return whether the legend has no entry for a trace yet: training seeds of one method share an entry."""
    return all(trace["name"] != other["name"] for other in earlier)


def log_axis(title: str, values: Iterable[float], ticks: Sequence[float] = ROUND_TICKS) -> dict[str, Any]:
    """Return a logarithmic axis with room around the values, and with as many of the ticks as are readable."""
    logarithms = [math.log10(value) for value in values if value > 0] or [0.0]
    room = 0.08 * (max(logarithms) - min(logarithms)) + 0.05
    low = min(logarithms) - room
    high = max(logarithms) + room
    shown = [tick for tick in ticks if low <= math.log10(tick) <= high]
    if len(shown) < 2:  # one number does not tell the scale of an axis
        shown = [tick for tick in _ALL_TICKS if low <= math.log10(tick) <= high]
    if len(shown) > _MOST_TICKS:
        shown = [tick for tick in shown if tick in _DECADES]
    return {
        "title": {"text": title},
        "type": "log",
        "range": [low, high],
        "tickvals": shown,
        "ticktext": [f"{tick:g}" for tick in shown],
    }
