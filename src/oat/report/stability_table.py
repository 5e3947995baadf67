"""The table of `oat inspect` that says how many tokens change when chunks hardly do."""

from collections.abc import Sequence

import numpy as np
import torch
from rich.table import Table

from oat.data.chunks import Windows
from oat.tables.terminal import make_rich_table
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.stability import Flips, Stability, draw_neighbours, measure_stability

_SHOWN_POSITIONS = 8


def measure_all(
    tokenizers: Sequence[BaseTokenizer], windows: Windows, most: int | None = None
) -> list[Stability | None]:
    """Measure tokenizers of the same chunks; None for all where no episode has a second step to compare with."""
    neighbours = draw_neighbours(windows, tokenizers[0], most)
    if not len(neighbours[0]):
        return [None] * len(tokenizers)
    # Seeded for each of them: all get the same noise.
    return [measure_stability(each, *neighbours, torch.Generator().manual_seed(0)) for each in tokenizers]


def stability_table(names: Sequence[str], stabilities: Sequence[Stability | None]) -> Table:
    """Return two rows for each tokenizer that was measured: one step later, and with noise."""
    table = make_rich_table(
        "tokens that change when chunks hardly do", "tokenizer", "chunk", "changed", "levels", "by position, %"
    )
    for name, each in zip(names, stabilities, strict=True):
        if each is None:
            continue
        table.add_row(name, "one step later", *_cells(each.shifted))
        table.add_row("", f"noise {each.noise:g}", *_cells(each.noised))
    table.caption = (
        "levels: mean distance on the lattice of codes, or in bins; noise: standard deviation in model space"
    )
    return table


def _cells(flips: Flips) -> tuple[str, str, str]:
    """Return the share of all tokens, the distance, and the shares at the first positions."""
    levels = f"{np.mean(flips.levels):.2g}" if flips.levels else "—"
    shares = [f"{100 * share:.0f}" for share in flips.differ[:_SHOWN_POSITIONS]]
    more = ["…"] if len(flips.differ) > _SHOWN_POSITIONS else []
    return f"{flips.share():.1%}", levels, " ".join([*shares, *more])
