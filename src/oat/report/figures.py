"""The page's figures as Plotly takes them: traces and a layout. Fonts, grid and background are the page's."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oat.report.reconstructions import Reconstruction
from oat.report.rollouts import ClosedLoop

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
_USED = "59, 130, 246"
_ROW_HEIGHT = 44
_INTERVALS = "Bars are 95 % intervals (Wilson's, with repeated conditions as clusters)."
_MEDIAN = "Median time of a batch of chunks, as it was when the episodes were run."
_DECADES = [10.0**power for power in range(-12, 7)]
_ROUND = [part * decade for decade in _DECADES for part in (1, 2, 5)]
_MOST_TICKS = 9
_DOUBLING = [2.0**power for power in range(14)]
_EVERY = [part * decade for decade in _DECADES for part in range(1, 10)]


@dataclass(frozen=True)
class Figure:
    """One plot with the words around it."""

    name: str
    """Unique on the page."""
    title: str
    caption: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int = 360


def choose_colours(methods: Iterable[str]) -> dict[str, str]:
    """A method has the same colour in all figures; ten differ, then they repeat."""
    distinct = dict.fromkeys(methods)
    return {method: _COLOURS[number % len(_COLOURS)] for number, method in enumerate(distinct)}


def plot_text(text: str) -> str:
    """For labels: Plotly takes tags in them for markup."""
    return html.escape(text, quote=False)


def success_figures(name: str, loop: ClosedLoop, colours: Mapping[str, str]) -> list[Figure]:
    """Success against what it costs: tokens, and time."""
    tokens = {row.policy: row.tokens_per_chunk for row in loop.overall}
    milliseconds = {row.policy: row.inference_ms for row in loop.overall}
    steps = "Tokens of a diffusion policy are its denoising steps."
    return [
        _success_figure(f"{name}-tokens", loop, _Cost("tokens per chunk", tokens, _DOUBLING, steps), colours),
        _success_figure(f"{name}-time", loop, _Cost("milliseconds per chunk", milliseconds, _ROUND, _MEDIAN), colours),
    ]


@dataclass(frozen=True)
class _Cost:
    """What success is drawn against."""

    unit: str
    of: Mapping[str, float]
    """Of each policy; not a number where it never computed a chunk."""
    ticks: Sequence[float]
    remark: str


def _success_figure(name: str, loop: ClosedLoop, cost: _Cost, colours: Mapping[str, str]) -> Figure:
    unknown = [policy for policy, value in cost.of.items() if not value > 0]
    remarks = [_INTERVALS, cost.remark, *([f"Without chunks, and not drawn: {', '.join(unknown)}."] if unknown else [])]
    where = loop.tasks[0] if len(loop.tasks) == 1 else f"{len(loop.tasks)} tasks"
    return Figure(
        name,
        f"Success against {cost.unit}, {where}",
        " ".join(remarks),
        [_success_trace(loop, method, cost, colours[method]) for method in dict.fromkeys(loop.methods.values())],
        {
            "xaxis": log_axis(cost.unit, cost.of.values(), cost.ticks),
            "yaxis": {"title": {"text": "success, %"}, "range": [0, 103]},
        },
    )


def _success_trace(loop: ClosedLoop, method: str, cost: _Cost, colour: str) -> dict[str, Any]:
    """A line from the method's cheapest decoding to its dearest."""
    mine = [row for row in loop.overall if loop.methods[row.policy] == method and cost.of[row.policy] > 0]
    mine.sort(key=lambda row: cost.of[row.policy])
    rates = [row.success for row in mine]
    return {
        "type": "scatter",
        "mode": "lines+markers+text" if len(mine) > 1 else "markers",
        "name": plot_text(method),
        "x": [cost.of[row.policy] for row in mine],
        "y": [100 * rate.estimate for rate in rates],
        "text": [plot_text(row.policy.removeprefix(method).strip()) for row in mine],
        "textposition": [("bottom right", "top left")[number % 2] for number in range(len(mine))],
        "textfont": {"color": colour},
        "cliponaxis": False,
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [100 * (rate.high - rate.estimate) for rate in rates],
            "arrayminus": [100 * (rate.estimate - rate.low) for rate in rates],
            "thickness": 1.2,
            "width": 3,
        },
        "customdata": [row.episodes for row in mine],
        "hovertemplate": f"{plot_text(method)} %{{text}}: %{{y:.1f}} % of %{{customdata}} episodes, "
        f"%{{x:.3g}} {cost.unit}<extra></extra>",
        "marker": {"color": colour, "size": 9},
        "line": {"color": colour, "width": 2},
    }


def distortion_figures(name: str, group: Sequence[Reconstruction], colours: Mapping[str, str]) -> list[Figure]:
    """Error against bits and against tokens, for tokenizers of the same chunks."""
    bits = [each.evaluation.bits / each.evaluation.tokens for each in group]
    return [
        _distortion_figure(f"{name}-bits", "bits", [_distortion_trace(*each, colours) for each in zip(group, bits)]),
        _distortion_figure(f"{name}-tokens", "tokens", [_distortion_trace(each, 1.0, colours) for each in group]),
    ]


def _distortion_figure(name: str, unit: str, traces: list[dict[str, Any]]) -> Figure:
    for number, trace in enumerate(traces):  # seeds of a method share an entry of the legend
        trace["showlegend"] = all(trace["name"] != earlier["name"] for earlier in traces[:number])
    counted = {"bits": "A token counts as the logarithm of its vocabulary.", "tokens": "One point for each prefix."}
    return Figure(
        name,
        f"Error against {unit}",
        "Mean squared error over held-out chunks; down and to the left is better. Actions are scaled to each "
        f"tokenizer's model space. {counted[unit]}",
        traces,
        {
            "xaxis": log_axis(f"{unit} per chunk", _values(traces, "x"), {"bits": _ROUND, "tokens": _DOUBLING}[unit]),
            "yaxis": log_axis("mean squared error", _values(traces, "y")),
        },
    )


def _values(traces: Sequence[Mapping[str, Any]], axis: str) -> list[float]:
    return [value for trace in traces for value in trace[axis]]


def _distortion_trace(each: Reconstruction, cost: float, colours: Mapping[str, str]) -> dict[str, Any]:
    """One point for each prefix, `cost` times its length to the right."""
    found = each.evaluation
    lengths = [float(k) for k in found.prefixes] if each.ordered else [found.tokens]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plot_text(each.method),
        "legendgroup": plot_text(each.method),
        "x": [cost * length for length in lengths],
        "y": list(found.mse),
        "text": [f"{plot_text(each.name)}, {length:.4g} tokens" for length in lengths],
        "hovertemplate": "%{text}: %{y:.3g}<extra></extra>",
        "marker": {"color": colours[each.method], "size": 8},
        "line": {"color": colours[each.method], "width": 2},
    }


def codebook_figure(name: str, group: Sequence[Reconstruction]) -> Figure:
    """How many ids each position really uses, a row for each tokenizer."""
    widest = max(len(each.evaluation.perplexity) for each in group)
    rows = [each.evaluation.perplexity + (None,) * (widest - len(each.evaluation.perplexity)) for each in group]
    shares = [
        [None if value is None else math.log(value) / math.log(each.vocab_size) for value in row]
        for row, each in zip(rows, group, strict=True)
    ]
    used = [[f"{share:.1%} of {each.vocab_size:,} ids occur" for share in each.evaluation.used] for each in group]
    return Figure(
        name,
        "Perplexity of each token",
        "The number of ids that a position would use if it used them all alike, over every held-out chunk; the darker, "
        "the closer to the whole vocabulary.",
        [
            {
                "type": "heatmap",
                "x": list(range(1, widest + 1)),
                "y": [plot_text(each.name) for each in group],
                "z": shares,
                "text": [["" if value is None else f"{value:.0f}" for value in row] for row in rows],
                "texttemplate": "%{text}",
                "customdata": used,
                "hovertemplate": "%{y}, token %{x}: perplexity %{text}, %{customdata}<extra></extra>",
                "zmin": 0,
                "zmax": 1,
                "colorscale": [[0, f"rgba({_USED}, 0.03)"], [1, f"rgba({_USED}, 0.5)"]],
                "showscale": False,
                "xgap": 3,
                "ygap": 3,
            }
        ],
        {
            "xaxis": {"title": {"text": "token"}, "dtick": 1, "showgrid": False},
            "yaxis": {"autorange": "reversed", "showgrid": False},
            "margin": {"t": 8},
        },
        height=64 + _ROW_HEIGHT * len(group),
    )


def log_axis(title: str, values: Iterable[float], ticks: Sequence[float] = _ROUND) -> dict[str, Any]:
    """Logarithmic, with room around the values; of too many ticks only the powers of ten stay, too few get company."""
    logarithms = [math.log10(value) for value in values if value > 0] or [0.0]
    room = 0.08 * (max(logarithms) - min(logarithms)) + 0.05
    low, high = min(logarithms) - room, max(logarithms) + room
    in_sight, more = ([tick for tick in each if low <= math.log10(tick) <= high] for each in (ticks, _EVERY))
    if len(in_sight) < 2:
        in_sight = more
    shown = in_sight if len(in_sight) <= _MOST_TICKS else [tick for tick in in_sight if tick in _DECADES]
    return {
        "title": {"text": title},
        "type": "log",
        "range": [low, high],
        "tickvals": shown,
        "ticktext": [f"{tick:g}" for tick in shown],
    }
