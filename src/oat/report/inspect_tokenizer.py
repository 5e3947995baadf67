"""Run `oat inspect` on tokenizers: rate, distortion and stability on held-out chunks, beside Bin, FAST and RVQ."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from oat.data.episodes import open_dataset
from oat.errors import InvalidOption
from oat.io.pictures import new_figure, save_figure
from oat.report.rate_distortion import RateCurve, baseline_curves, curve_of, fit_like, who_leads
from oat.report.rate_picture import INK, draw_rates, quieten
from oat.report.stability_table import measure_all, stability_table
from oat.tables.terminal import make_rich_table
from oat.tokenizers import BaseTokenizer
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.measures import ChunkBatch, TokenizerMeasures, draw_chunks, evaluate, typical_chunks
from oat.tokenizers.stability import Stability
from oat.training.fitting import MERGE_CHUNKS
from oat.training.tokenizers import split_windows

_CHUNKS = 2048  # that errors are measured on
_BASELINES = ("bin", "fast", "rvq")  # are fitted in seconds, and need no checkpoint
_ERROR_LIMITS = (0.5, 0.2, 0.1, 0.05)  # of half the actions' range
_SHOWN_PREFIXES = (1, 2, 4, 8)
_SHOWN_CHUNKS = 3
_SHOWN_DIMENSIONS = 8  # an arm's; hands and humanoids have dozens
_MANY_UNUSUAL = 0.05  # where a hundredth is expected


def inspect_tokenizer(
    path: Path, data: Path, beside: Sequence[Path] = (), *, picture: Path | None = None, as_json: bool = False
) -> None:
    """Measure a tokenizer on demonstrations: on those that were held out in fitting, if it was fitted to them."""
    tokenizer = load_tokenizer(path)
    episodes = open_dataset(data)
    if episodes.action_dim != tokenizer.action_dim:
        raise InvalidOption(
            f"{data} has {episodes.action_dim}-D actions, the tokenizer is for {tokenizer.action_dim}-D"
        )
    windows, held_out = split_windows(episodes, tokenizer.space, *tokenizer.training_record.split())
    chunks = draw_chunks(held_out, tokenizer, _CHUNKS)
    everything = draw_chunks(held_out, tokenizer)  # use of a large codebook shows only in many chunks
    limits = _error_limits(tokenizer) if tokenizer.prefix_decodable else ()
    evaluations = [evaluate(tokenizer, chunks, limits, everything=everything, name=path.resolve().name)]
    others = [_load_comparable(other, tokenizer) for other in beside]
    evaluations += [evaluate(each, chunks, name=at.resolve().name) for each, at in zip(others, beside, strict=True)]
    taught = draw_chunks(windows, tokenizer, MERGE_CHUNKS)
    baselines = [fit_like(kind, tokenizer, taught) for kind in _BASELINES if kind != tokenizer.kind]
    evaluations += [evaluate(each, chunks) for each in baselines]
    stabilities = measure_all([tokenizer, *others, *baselines], held_out, _CHUNKS)
    # A baseline with prefixes has its curve already; those without have one over the settings that they can have.
    measured = [each for place, each in enumerate(evaluations) if place <= len(others) or len(each.prefixes) > 1]
    curves = [*map(curve_of, measured), *baseline_curves(tokenizer, windows, chunks)]
    if as_json:
        Console(soft_wrap=True).print(_to_json(evaluations, stabilities), markup=False, highlight=False)
    else:
        _print_tables(evaluations, stabilities)
        Console(soft_wrap=True).print(who_leads(curves), markup=False, highlight=False)
        _tell_unusual(evaluations[0], episodes.action_names if tokenizer.space.transform.kind == "identity" else ())
    picture = picture or Path(f"{path.resolve().name}-inspect.png")
    _draw(tokenizer, chunks, evaluations[0], curves, picture)
    # With --json the standard output is the JSON alone, for programs that read it.
    Console(stderr=as_json, soft_wrap=True).print(f"picture: {picture}", highlight=False, markup=False)


def _load_comparable(path: Path, tokenizer: BaseTokenizer) -> BaseTokenizer:
    """Load another tokenizer, and refuse it unless it is for the same chunks in the same model space."""
    other = load_tokenizer(path)
    same = all(torch.equal(a, b) for a, b in zip(other.normalizer.buffers(), tokenizer.normalizer.buffers()))
    if other.space != tokenizer.space or not same:
        raise InvalidOption(
            f"{path} is for other chunks or normalised otherwise ({other.space}), so that its errors cannot be compared"
        )
    return other


def _error_limits(tokenizer: BaseTokenizer) -> tuple[float, ...]:
    half_range = float(tokenizer.normalizer.spread.max())
    return tuple(share * half_range for share in _ERROR_LIMITS)


def _to_json(evaluations: list[TokenizerMeasures], stabilities: list[Stability | None]) -> str:
    """Return all that was measured of each tokenizer as JSON; stability is null where it could not be."""
    both = zip(evaluations, stabilities, strict=True)
    return json.dumps([{**asdict(e), "stability": None if stable is None else asdict(stable)} for e, stable in both])


def _print_tables(evaluations: list[TokenizerMeasures], stabilities: list[Stability | None]) -> None:
    console = Console()
    own = evaluations[0]
    console.print(f"{own.name} ({own.kind}): {own.chunks} held-out chunks", highlight=False)
    console.print(_prefix_table(evaluations))
    if own.used:
        console.print(_codebook_table(own))
    if own.lengths_within:
        console.print(_length_table(own))
    console.print(stability_table([e.name for e in evaluations], stabilities))


def _prefix_table(evaluations: list[TokenizerMeasures]) -> Table:
    table = make_rich_table(
        *("rate and distortion", "tokenizer", "tokens", "bits", "entropy"),
        *("MSE", "RMSE per dimension", "enc/s", "dec/s"),
    )
    for e in evaluations:
        for number, k in enumerate(e.prefixes):
            tokens = float(k) if len(e.prefixes) > 1 else e.tokens
            rmse = _rmse_text(e.rmse[number])
            # Speed is measured once for a tokenizer, and not for each prefix.
            rates = (f"{e.encode_rate:,.0f}", f"{e.decode_rate:,.0f}") if k == e.prefixes[-1] else ("", "")
            bits = e.bits * tokens / e.tokens
            sizes = (f"{tokens:.4g}", f"{bits:.0f}", f"{e.entropy[number]:.0f}")
            table.add_row(e.name, *sizes, f"{e.mse[number]:.2e}", rmse, *rates)
    own = evaluations[0]
    if len(own.prefixes) > 1:
        table.caption = f"error falls, or stays, with every single token for {own.monotone:.0%} of the chunks"
    return table


def _rmse_text(errors: Sequence[float]) -> str:
    """Return every dimension's error, or the range of many, which would fill lines."""
    if len(errors) <= _SHOWN_DIMENSIONS:
        return " ".join(f"{error:.2g}" for error in errors)
    worst = max(range(len(errors)), key=lambda dimension: errors[dimension])
    return f"{min(errors):.2g} … {errors[worst]:.2g} (dimension {worst})"


def _tell_unusual(own: TokenizerMeasures, names: Sequence[str] | None) -> None:
    """Say how many chunks are unlike those that the tokenizer was fitted to, if it knows how those were."""
    if own.usual is None or own.unusual is None:
        return
    where = f"{own.worst} ({names[own.worst]})" if names else str(own.worst)
    told = (
        f"{own.unusual:.1%} of the chunks have errors above {own.usual:.2g}, which 99 % of those held out in fitting "
        f"stayed below; most of the error is in dimension {where}."
    )
    advice = " Fit anew to such data." if own.unusual > _MANY_UNUSUAL else ""
    Console(soft_wrap=True).print(told + advice, markup=False, highlight=False)


def _codebook_table(evaluation: TokenizerMeasures) -> Table:
    table = make_rich_table("codebook", "token", "used", "perplexity")
    for number, (used, perplexity) in enumerate(zip(evaluation.used, evaluation.perplexity, strict=True), start=1):
        table.add_row(str(number), f"{used:.1%}", f"{perplexity:.0f}")
    return table


def _length_table(evaluation: TokenizerMeasures) -> Table:
    table = make_rich_table("chunks that need K tokens", "largest error", *(f"K={k}" for k in evaluation.prefixes))
    for limit, counts in evaluation.lengths_within.items():
        table.add_row(limit, *map(str, counts))
    table.caption = (
        f"the last column includes chunks that {evaluation.prefixes[-1]} tokens do not bring below the limit"
    )
    return table


def _draw(
    tokenizer: BaseTokenizer, chunks: ChunkBatch, own: TokenizerMeasures, curves: list[RateCurve], picture: Path
) -> None:
    """Draw rate and distortion of all tokenizers, and a few chunks refined from prefix to prefix."""
    figure = new_figure(12, 15)
    grid = figure.add_gridspec(1 + _SHOWN_CHUNKS, 4, height_ratios=(2.2, *(1,) * _SHOWN_CHUNKS))
    draw_rates(figure.add_subplot(grid[0, :3]), curves, who_leads(curves))
    _draw_codebook(figure.add_subplot(grid[0, 3]), own)
    for row, chosen in enumerate(typical_chunks(chunks, _SHOWN_CHUNKS), start=1):
        axes = [figure.add_subplot(grid[row, column]) for column in range(4)]
        _draw_refinement(axes, tokenizer, chunks, chosen)
    save_figure(figure, picture, dpi=120)


def _draw_codebook(axes: Any, evaluation: TokenizerMeasures) -> None:
    positions = range(1, len(evaluation.perplexity) + 1)
    axes.bar(positions, evaluation.perplexity, color="#2563c9", width=0.7)
    axes.set(xlabel="token")
    axes.set_title("Perplexity of each token", loc="left", fontsize=11, fontweight="bold", color=INK)
    quieten(axes)


def _draw_refinement(axes: list[Any], tokenizer: BaseTokenizer, chunks: ChunkBatch, shown: int) -> None:
    """Draw a chunk as 1, 2, 4 and 8 tokens decode to it; a tokenizer without prefixes decodes all its tokens."""
    one = slice(shown, shown + 1)
    state = None if chunks.state is None else chunks.state[one]
    tokens = tokenizer.encode(chunks.actions[one], chunks.valid[one], state)
    num_valid = int(chunks.valid[shown].sum())
    truth = chunks.actions[shown, :num_valid]
    for panel, k in zip(axes, _SHOWN_PREFIXES, strict=True):
        length = min(k, tokenizer.max_tokens) if tokenizer.prefix_decodable else tokenizer.max_tokens
        decoded = tokenizer.decode(tokens[:, :length], state=state)[0, :num_valid]
        for dim in range(truth.shape[1]):
            panel.plot(truth[:, dim], color=f"C{dim % 10}", alpha=0.35, linewidth=3)
            panel.plot(decoded[:, dim], color=f"C{dim % 10}", linestyle="--")
        error = float(torch.mean((decoded - truth) ** 2))
        panel.set_title(f"{length} token{'s' if length > 1 else ''}, MSE {error:.2g}", fontsize=9)
        panel.set_xlabel("step")
        quieten(panel)
    axes[0].set_ylabel("action (dashed: decoded)")
