"""The section on closed-loop success: figures against tokens and time, and tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oat.evaluation.summaries import Summary
from oat.evaluation.tables import policy_table, summary_table
from oat.policies.stopping import DEPTH_RULES, RANDOM_DEPTH
from oat.report.page_data import PageData
from oat.report.plots import DOUBLING_TICKS, ROUND_TICKS, Colours, Figure, Trace, log_axis, plot_text
from oat.report.rollouts import RolloutGroup
from oat.report.sections.section import Part, Section

_INTERVALS = "Bars are 95 % intervals (Wilson's, with repeated conditions as clusters)."
_DENOISING = "Tokens of a diffusion policy are its denoising steps; the only pass of a regression policy counts as one."
_SYMBOLS = ("circle", "diamond", "square", "x", "triangle-up", "cross", "star", "triangle-down")
_MOST_LABELS = 4  # of the points on a line, and in a legend of the usual height
_LEGEND_LINE = 20  # pixels, for two ways to decode
_MEANS = "Means of each episode's best score, which is finer than success, with 95 % intervals."
_MEDIAN = "Median time of a batch of chunks, as it was when the episodes were run."


def success_section(data: PageData, colours: Colours) -> Section | None:
    """Show the success of policies, apart for each way in which episodes were run."""
    if not data.rollouts:
        return None
    parts = [
        Part(
            f"{group.protocol}, {group.split} conditions",
            remarks=group.remarks(),
            figures=success_figures(f"success-{number}", group, colours),
            tables=[policy_table("Success, %", group.summaries)],
            folded_tables=[replace(summary_table(group.summaries), title="Every policy on every task")],
        )
        for number, group in enumerate(data.rollouts)
    ]
    introduction = "Policies act in a simulator. Only episodes of one protocol are put side by side."
    return Section("success", "Closed loop", introduction, parts)


@dataclass(frozen=True)
class _Cost:
    """Describe what a chunk costs each policy, as the axis that success is drawn against."""

    unit: str
    by_policy: Mapping[str, float]
    """Cost of a chunk by the policy's name; NaN where the policy never computed one."""
    ticks: Sequence[float]
    remark: str


def success_figures(name: str, group: RolloutGroup, colours: Colours) -> list[Figure]:
    """Draw success, or the score that decides, against what it costs: once against tokens, once against time."""
    tokens = {row.policy: row.tokens_per_chunk for row in group.overall}
    milliseconds = {row.policy: row.inference_ms for row in group.overall}
    return [
        _success_figure(
            f"{name}-tokens", group, _Cost("tokens per chunk", tokens, DOUBLING_TICKS, _DENOISING), colours
        ),
        _success_figure(
            f"{name}-time", group, _Cost("milliseconds per chunk", milliseconds, ROUND_TICKS, _MEDIAN), colours
        ),
    ]


def _success_figure(name: str, group: RolloutGroup, cost: _Cost, colours: Colours) -> Figure:
    scored = any(row.score is not None for row in group.overall)
    measure = "score" if scored else "success"
    caption = f"{_MEANS if scored else _INTERVALS} {cost.remark}"
    # NaN compares as False, so that this finds policies without any chunk, too.
    unknown = [policy for policy, value in cost.by_policy.items() if not value > 0]
    if unknown:
        caption += f" Without chunks, and not drawn: {', '.join(unknown)}."
    methods = dict.fromkeys(group.methods.values())
    traces = [trace for method in methods for trace in _method_traces(group, method, cost, colours[method])]
    where = group.tasks[0] if len(group.tasks) == 1 else f"{len(group.tasks)} tasks"
    return Figure(
        name,
        f"{measure.capitalize()} against {cost.unit}, {where}",
        caption,
        traces,
        {
            "xaxis": log_axis(cost.unit, cost.by_policy.values(), cost.ticks),
            # A little above 100 %, where markers would be cut in half.
            "yaxis": {"title": {"text": f"{measure}, %"}, "range": [0, 103]},
        },
        # A long legend must not take the room of the plot.
        Figure.height + _LEGEND_LINE * max(0, len(traces) - _MOST_LABELS) // 2,
    )


def _method_traces(group: RolloutGroup, method: str, cost: _Cost, colour: str) -> Iterator[Trace]:
    """Draw each way in which a method decoded with a mark of its own, from its cheapest decoding on."""
    rows = [row for row in group.overall if group.methods[row.policy] == method and cost.by_policy[row.policy] > 0]
    rows.sort(key=lambda row: cost.by_policy[row.policy])
    ways: dict[tuple[str, bool], list[Summary]] = {}
    for row in rows:
        ways.setdefault(_way(_decoding(row, method)), []).append(row)
    for number, ((way, scattered), alike) in enumerate(sorted(ways.items(), key=lambda each: -len(each[1]))):
        trace = _success_trace(alike, method, cost, colour)
        trace["marker"] |= {"symbol": _SYMBOLS[number % len(_SYMBOLS)]}
        if len(ways) > 1:
            trace["name"] = plot_text(f"{method} {way}".strip())
            trace["text"] = _end_labels([plot_text(_decoding(row, method).split()[0]) for row in alike])
        if scattered:
            trace["mode"] = "markers"
        yield trace


def _end_labels(labels: Sequence[str]) -> list[str]:
    """Return the labels, of many only the first and the last: those between would overlap."""
    inner = range(1, len(labels) - 1) if len(labels) > _MOST_LABELS else ()
    return ["" if number in inner else label for number, label in enumerate(labels)]


def _decoding(row: Summary, method: str) -> str:
    return row.policy.removeprefix(method).strip()


def _way(decoding: str) -> tuple[str, bool]:
    """Return how tokens are chosen, whatever their number and the settings of a stopping rule; and if it has any.

    Points of one rule at several settings are no line: each training seed has settings of its own.
    """
    words = [word for word in decoding.split() if not word.startswith("K=")]
    rules = [word.partition("=")[0] for word in words]
    stopping = [rule in (*DEPTH_RULES, RANDOM_DEPTH) for rule in rules]
    named = [rule if stops else word for word, rule, stops in zip(words, rules, stopping, strict=True)]
    return " ".join(named), any(stopping)


def _success_trace(rows: Sequence[Summary], method: str, cost: _Cost, colour: str) -> Trace:
    """Draw a line from the cheapest of these decodings to the most expensive one."""
    rates = [row.success if row.score is None else row.score for row in rows]
    error_bars: dict[str, Any] = {
        "type": "data",
        "symmetric": False,
        "array": [100 * (rate.high - rate.estimate) for rate in rates],
        "arrayminus": [100 * (rate.estimate - rate.low) for rate in rates],
        "thickness": 1.2,
        "width": 3,
    }
    return {
        "type": "scatter",
        "mode": "lines+markers+text" if len(rows) > 1 else "markers",
        "name": plot_text(method),
        "x": [cost.by_policy[row.policy] for row in rows],
        "y": [100 * rate.estimate for rate in rates],
        "text": [plot_text(_decoding(row, method)) for row in rows],
        # Labels of neighbouring points would overlap on one side.
        "textposition": [("bottom right", "top left")[number % 2] for number in range(len(rows))],
        "textfont": {"color": colour},
        "cliponaxis": False,
        "error_y": error_bars,
        "customdata": [[row.episodes, plot_text(row.policy)] for row in rows],
        "hovertemplate": "%{customdata[1]}: %{y:.1f} % in %{customdata[0]} episodes, "
        f"%{{x:.3g}} {cost.unit}<extra></extra>",
        "marker": {"color": colour, "size": 9},
        "line": {"color": colour, "width": 2},
    }
