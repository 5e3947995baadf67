"""Draw the picture that explains ordered tokens: held-out chunks, decoded from more and more of their tokens."""

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from rich.console import Console
from torch import Tensor

from oat.data.episodes import open_dataset
from oat.errors import InvalidOption
from oat.io.pictures import new_figure, save_figure
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.measures import ChunkBatch, decode_prefixes, draw_chunks, model_errors, typical_chunks
from oat.training.tokenizers import split_windows

_CHUNKS = 2048  # among which those with little, some and much motion are looked for
_ROWS = 3
_PREFIXES = (1, 2, 4, 8)
_INK = "#1d2026"
_SOFT = "#6b727b"
_TRUTH = "#c9ccd1"
_DECODED = ("#2563c9", "#d9480f", "#2b8a3e", "#862e9c", "#c2255c", "#0b7285", "#5c940d")
_DOTS_PER_INCH = 120


def inspect_refinement(path: Path, data: Path, picture: Path) -> None:
    """Draw chunks of a data set, held out where the tokenizer was fitted to it, and say where the picture is."""
    tokenizer = load_tokenizer(path)
    episodes = open_dataset(data)
    if episodes.action_dim != tokenizer.action_dim:
        raise InvalidOption(
            f"{data} has {episodes.action_dim}-D actions, the tokenizer is for {tokenizer.action_dim}-D"
        )
    _, held_out = split_windows(episodes, tokenizer.space, *tokenizer.training_record.split())
    draw_refinement(tokenizer, draw_chunks(held_out, tokenizer, _CHUNKS), picture)
    Console(soft_wrap=True).print(f"picture: {picture}", highlight=False, markup=False)


def draw_refinement(tokenizer: BaseTokenizer, chunks: ChunkBatch, picture: Path) -> None:
    """Draw what 1, 2, 4, … tokens say of three chunks, from one with little motion to one with much.

    Two-dimensional actions are drawn as a path in the plane, others as curves over time.
    """
    if not tokenizer.prefix_decodable:
        raise InvalidOption(f"{tokenizer.kind} has no prefixes that decode, so that nothing refines")
    prefixes = [k for k in _PREFIXES if k < tokenizer.max_tokens]
    prefixes.append(tokenizer.max_tokens)
    shown = chunks[typical_chunks(chunks, _ROWS)]
    tokens = shown.encode(tokenizer)
    decoded = decode_prefixes(tokenizer, tokens, shown)
    errors = model_errors(tokenizer, decoded, shown)

    figure = new_figure(2.2 * len(prefixes), 2.4 * _ROWS + 0.3)
    grid = figure.subplots(_ROWS, len(prefixes), squeeze=False)
    for row in range(_ROWS):
        steps = int(shown.valid[row].sum())
        truth = shown.actions[row, :steps]
        limits = _limits(truth, decoded[row, :, :steps])
        for axes, k in zip(grid[row], prefixes, strict=True):
            _draw_panel(axes, truth, decoded[row, k - 1, :steps], limits)
            ids = " ".join(map(str, tokens.ids[row, :k].tolist()))
            axes.set_xlabel(f"{ids}\nerror {float(errors[row, k - 1]):.4f}", fontsize=8, color=_SOFT, linespacing=1.4)
    for axes, k in zip(grid[0], prefixes, strict=True):
        axes.set_title(f"{k} token" if k == 1 else f"{k} tokens", fontsize=13, color=_INK, fontweight="bold", pad=8)
    save_figure(figure, picture, dpi=_DOTS_PER_INCH)


def _limits(
    truth: Float[Tensor, "time dim"], decoded: Float[Tensor, "prefixes time dim"]
) -> tuple[Float[Tensor, " dim"], Float[Tensor, " dim"]]:
    """Return the smallest and largest value of every dimension, so that all panels of a row share their scale."""
    every = torch.cat([truth, decoded.flatten(0, 1)])
    return every.min(0).values, every.max(0).values


def _draw_panel(
    axes: Any,
    truth: Float[Tensor, "time dim"],
    decoded: Float[Tensor, "time dim"],
    limits: tuple[Float[Tensor, " dim"], Float[Tensor, " dim"]],
) -> None:
    low, high = limits
    if truth.shape[1] == 2:
        _draw_path(axes, truth, decoded)
        middle = (low + high) / 2
        half = 0.56 * float((high - low).max())  # both axes alike, or the path would be distorted
        axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half), aspect="equal")
    else:
        _draw_curves(axes, truth, decoded)
        margin = 0.06 * float(high.max() - low.min())
        axes.set_ylim(float(low.min()) - margin, float(high.max()) + margin)
    axes.set(xticks=[], yticks=[], facecolor="#faf9f7")
    for spine in axes.spines.values():
        spine.set_color("#e2e0db")


def _draw_path(axes: Any, truth: Float[Tensor, "time 2"], decoded: Float[Tensor, "time 2"]) -> None:
    axes.plot(*truth.T, color=_TRUTH, linewidth=7, solid_capstyle="round", solid_joinstyle="round")
    axes.plot(*decoded.T, color=_DECODED[0], linewidth=1.6, solid_capstyle="round")
    axes.plot(*decoded.T, color=_DECODED[0], linestyle="none", marker="o", markersize=2.8)
    # A ring where the path begins: its direction cannot be seen otherwise.
    axes.plot(*truth[0], marker="o", markersize=8, markerfacecolor="white", markeredgecolor=_INK, markeredgewidth=1.4)


def _draw_curves(axes: Any, truth: Float[Tensor, "time dim"], decoded: Float[Tensor, "time dim"]) -> None:
    # All demonstrated curves first, so that none of them covers a decoded one.
    for dim in range(truth.shape[1]):
        axes.plot(truth[:, dim], color=_TRUTH, linewidth=4, solid_capstyle="round")
    for dim in range(truth.shape[1]):
        axes.plot(decoded[:, dim], color=_DECODED[dim % len(_DECODED)], linewidth=1.5)
