"""Draw error against bits for several data sets in one picture: an OAT tokenizer, RVQ up to 24 tokens, FAST and Bin.

OMP_NUM_THREADS=1 python benchmarks/rates.py NAME=TOKENIZER=DATA … --out rates.png     two minutes for each

TOKENIZER is a run or checkpoint of `oat fit --data DATA --tokenizer oat`; RVQ, FAST and Bin are fitted to the same
episodes in the same model space, and all are measured on the same held-out chunks.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

from pathlib import Path

import tyro
from rich.console import Console

from oat.data.episodes import open_dataset
from oat.errors import InvalidOption
from oat.io.pictures import new_figure, save_figure
from oat.report.rate_distortion import RateCurve, baseline_curves, curve_of, fit_like, who_leads
from oat.report.rate_picture import INK, draw_rates
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.measures import draw_chunks, evaluate
from oat.training.fitting import MERGE_CHUNKS
from oat.training.tokenizers import split_windows

_CHUNKS = 2048  # that errors are measured on
_TOKENS = 24  # 240 bits of 1,000 codes each


def main(sets: tyro.conf.Positional[tuple[str, ...]], out: Path = Path("rates.png")) -> None:
    """Measure each data set's tokenizers, draw them, and say who is ahead where.

    Args:
        sets: A name, a tokenizer and a data set each, joined by equal signs.
        out: The picture.
    """
    figure = new_figure(14, 5.2 * ((len(sets) + 1) // 2))
    for place, each in enumerate(sets, start=1):
        parts = each.split("=")
        if len(parts) != 3:
            raise InvalidOption(f"each set is NAME=TOKENIZER=DATA, got {each!r}")
        curves = measure(Path(parts[1]), Path(parts[2]))
        told = who_leads(curves)
        axes = figure.add_subplot((len(sets) + 1) // 2, 2, place)
        draw_rates(axes, curves, "")
        axes.set_title(parts[0], loc="left", fontsize=13, fontweight="bold", color=INK)
        Console(soft_wrap=True).print(f"{parts[0]}: {told}", markup=False, highlight=False)
        for curve in curves:
            points = ", ".join(f"{point.entropy:.0f}: {point.mse:.2g}" for point in curve.points)
            Console(soft_wrap=True).print(f"  {curve.name} (bits: error) {points}", markup=False, highlight=False)
    save_figure(figure, out, dpi=90)


def measure(checkpoint: Path, data: Path) -> list[RateCurve]:
    """Return the curves of a data set: OAT's, RVQ's, and those of the kinds without prefixes."""
    tokenizer = load_tokenizer(checkpoint)
    windows, held_out = split_windows(open_dataset(data), tokenizer.space, *tokenizer.training_record.split())
    chunks = draw_chunks(held_out, tokenizer, _CHUNKS)
    taught = draw_chunks(windows, tokenizer, MERGE_CHUNKS)
    prototypes = fit_like("rvq", tokenizer, taught, latent_horizon=_TOKENS)
    ours = [evaluate(tokenizer, chunks, name="OAT"), evaluate(prototypes, chunks, name="RVQ")]
    return [*map(curve_of, ours), *baseline_curves(tokenizer, windows, chunks)]


if __name__ == "__main__":
    tyro.cli(main)
