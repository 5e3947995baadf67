"""The section on the use of codebooks."""

import math
from collections.abc import Sequence

from oat.report.measured_tokenizers import MeasuredTokenizer
from oat.report.page_data import PageData
from oat.report.plots import Colours, Figure, Trace, plot_text
from oat.report.sections.section import Part, Section

_CELL_COLOUR = "59, 130, 246"
_ROW_HEIGHT = 44  # pixels


def codebook_section(data: PageData, colours: Colours) -> Section | None:
    """Show how evenly each token uses its ids, for tokenizers with a small fixed number of tokens."""
    # Only those have measured perplexities: elsewhere a position means something else in every chunk.
    positional = [tokenizer for tokenizer in data.tokenizers if tokenizer.evaluation.perplexity]
    if not positional:
        return None
    part = Part(figures=[codebook_figure("perplexity", positional)])
    return Section("codebook", "Codebook", "How evenly each token uses its ids.", [part])


def codebook_figure(name: str, tokenizers: Sequence[MeasuredTokenizer]) -> Figure:
    """Draw how many ids each position really uses, a row for each tokenizer."""
    return Figure(
        name,
        "Perplexity of each token",
        "The number of ids that a position would use if it used them all alike, over every held-out chunk; the darker, "
        "the closer to the whole vocabulary.",
        [_heatmap(tokenizers)],
        {
            "xaxis": {"title": {"text": "token"}, "dtick": 1, "showgrid": False},
            "yaxis": {"autorange": "reversed", "showgrid": False},
            "margin": {"t": 8},
        },
        height=64 + _ROW_HEIGHT * len(tokenizers),
    )


def _heatmap(tokenizers: Sequence[MeasuredTokenizer]) -> Trace:
    widest = max(len(each.evaluation.perplexity) for each in tokenizers)
    rows = [each.evaluation.perplexity + (None,) * (widest - len(each.evaluation.perplexity)) for each in tokenizers]
    # Vocabularies differ by orders of magnitude: only shares of their logarithms have one scale of colours.
    shares = [
        [None if value is None else math.log(value) / math.log(each.vocab_size) for value in row]
        for row, each in zip(rows, tokenizers, strict=True)
    ]
    return {
        "type": "heatmap",
        "x": list(range(1, widest + 1)),
        "y": [plot_text(each.name) for each in tokenizers],
        "z": shares,
        "text": [["" if value is None else f"{value:.0f}" for value in row] for row in rows],
        "texttemplate": "%{text}",
        "customdata": [
            [f"{share:.1%} of {each.vocab_size:,} ids occur" for share in each.evaluation.used] for each in tokenizers
        ],
        "hovertemplate": "%{y}, token %{x}: perplexity %{text}, %{customdata}<extra></extra>",
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, f"rgba({_CELL_COLOUR}, 0.03)"], [1, f"rgba({_CELL_COLOUR}, 0.5)"]],
        "showscale": False,
        "xgap": 3,
        "ygap": 3,
    }
