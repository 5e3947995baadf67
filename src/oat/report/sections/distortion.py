"""The section on rate and distortion: how much tokenizers lose, for how many bits and tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oat.report.measured_tokenizers import MeasuredTokenizer, group_by_chunks
from oat.report.page_data import PageData
from oat.report.plots import (
    DOUBLING_TICKS,
    ROUND_TICKS,
    Colours,
    Figure,
    Trace,
    first_of_its_name,
    log_axis,
    plot_text,
)
from oat.report.sections.section import Part, Section
from oat.tables.table import Table

_SHOWN_PREFIXES = (1, 2, 4, 8)


def distortion_section(data: PageData, colours: Colours) -> Section | None:
    """Show the errors of tokenizers, apart for each kind of chunk."""
    if not data.tokenizers:
        return None
    parts = [_distortion_part(number, group, colours) for number, group in enumerate(group_by_chunks(data.tokenizers))]
    introduction = "How much each tokenizer loses, for how many bits and tokens."
    return Section("distortion", "Rate and distortion", introduction, parts)


def _distortion_part(number: int, group: Sequence[MeasuredTokenizer], colours: Colours) -> Part:
    space = group[0].space
    transformed = "" if space.transform.kind == "identity" else f", {space.transform.kind}"
    title = f"{space.action_horizon} × {space.action_dim} actions of {group[0].data}{transformed}"
    return Part(
        title,
        remarks=[each.remark for each in group if each.remark],
        figures=distortion_figures(f"distortion-{number}", group, colours),
        tables=[_distortion_table(title, group)],
    )


def _distortion_table(title: str, group: Sequence[MeasuredTokenizer]) -> Table:
    shown = [k for k in _SHOWN_PREFIXES if any(each.ordered and k in each.evaluation.prefixes for each in group)]
    notes = (
        "each on chunks of episodes that were held out from its own fitting, scaled to its model space",
        "never worse: chunks whose error falls, or stays, with every single token",
        "enc/s, dec/s: chunks per second while this page was made",
    )
    return Table(
        f"Mean squared error for {title}",
        (
            *("tokenizer", "chunks", "tokens", "bits", *(f"K={k}" for k in shown)),
            *("all tokens", "never worse", "enc/s", "dec/s"),
        ),
        tuple(_distortion_row(each, shown) for each in group),
        notes,
    )


def _distortion_row(tokenizer: MeasuredTokenizer, shown: Sequence[int]) -> tuple[str, ...]:
    measures = tokenizer.evaluation
    errors = dict(zip(measures.prefixes, measures.mse, strict=True)) if tokenizer.ordered else {}
    sizes = (f"{measures.chunks:,}", f"{measures.tokens:.4g}", f"{measures.bits:,.0f}")
    prefixes = (f"{errors[k]:.2g}" if k in errors else "—" for k in shown)
    never_worse = f"{measures.monotone:.0%}" if tokenizer.ordered else "—"
    speeds = (f"{measures.encode_rate:,.0f}", f"{measures.decode_rate:,.0f}")
    return (tokenizer.name, *sizes, *prefixes, f"{measures.mse[-1]:.2g}", never_worse, *speeds)


@dataclass(frozen=True)
class _Rate:
    """Describe one way to count what a tokenizer writes, as the axis that its error is drawn against."""

    unit: str
    per_token: Callable[[MeasuredTokenizer], float]
    ticks: Sequence[float]
    remark: str


_RATES = (
    _Rate(
        "bits",
        lambda tokenizer: tokenizer.evaluation.bits / tokenizer.evaluation.tokens,
        ROUND_TICKS,
        "A token counts as the logarithm of its vocabulary.",
    ),
    _Rate("tokens", lambda tokenizer: 1.0, DOUBLING_TICKS, "One point for each prefix."),
)


def distortion_figures(name: str, group: Sequence[MeasuredTokenizer], colours: Colours) -> list[Figure]:
    """Draw the errors of tokenizers of the same chunks, once against bits, once against tokens."""
    return [_distortion_figure(f"{name}-{rate.unit}", group, rate, colours) for rate in _RATES]


def _distortion_figure(name: str, group: Sequence[MeasuredTokenizer], rate: _Rate, colours: Colours) -> Figure:
    traces: list[Trace] = []
    for tokenizer in group:
        trace = _distortion_trace(tokenizer, rate.per_token(tokenizer), colours[tokenizer.method])
        trace["showlegend"] = first_of_its_name(trace, traces)
        traces.append(trace)
    return Figure(
        name,
        f"Error against {rate.unit}",
        "Mean squared error over held-out chunks; down and to the left is better. Actions are scaled to each "
        f"tokenizer's model space. {rate.remark}",
        traces,
        {
            "xaxis": log_axis(f"{rate.unit} per chunk", [x for trace in traces for x in trace["x"]], rate.ticks),
            "yaxis": log_axis("mean squared error", [y for trace in traces for y in trace["y"]]),
        },
    )


def _distortion_trace(tokenizer: MeasuredTokenizer, per_token: float, colour: str) -> Trace:
    """Draw one point for each prefix, `per_token` times its length to the right."""
    measures = tokenizer.evaluation
    lengths = [float(k) for k in measures.prefixes] if tokenizer.ordered else [measures.tokens]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plot_text(tokenizer.method),
        "legendgroup": plot_text(tokenizer.method),
        "x": [per_token * length for length in lengths],
        "y": list(measures.mse),
        "text": [f"{plot_text(tokenizer.name)}, {length:.4g} tokens" for length in lengths],
        "hovertemplate": "%{text}: %{y:.3g}<extra></extra>",
        "marker": {"color": colour, "size": 8},
        "line": {"color": colour, "width": 2},
    }
