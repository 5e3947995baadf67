"""What encoding by search gains and costs: error of every prefix, how often every token refines, time per chunk.

OMP_NUM_THREADS=1 python benchmarks/search.py TOKENIZER DATA --out results/search.md [--chunks 96] [--sweeps 0 1 2 4]

TOKENIZER is an ordered one, DATA what it was fitted to; held-out chunks are encoded on one thread. Times are processor
times, so that they mean the same on a busy machine.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from rich.console import Console
from torch import Tensor

from oat.data.episodes import open_dataset
from oat.tables.markdown import to_markdown
from oat.tables.table import Table
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.measures import ChunkBatch, decode_prefixes, draw_chunks, model_errors, monotone_share
from oat.training.tokenizers import split_windows


@dataclass(frozen=True)
class Outcome:
    """Hold what so many sweeps led to."""

    sweeps: int
    errors: Tensor
    changed: float
    """Share of the encoder's tokens that were replaced."""
    milliseconds: float


def main(
    tokenizer: tyro.conf.Positional[Path],
    data: tyro.conf.Positional[Path],
    out: Path,
    chunks: int = 96,
    sweeps: tuple[int, ...] = (0, 1, 2, 4),
) -> None:
    """Encode held-out chunks with each number of sweeps, and compare.

    Args:
        tokenizer: The checkpoint or run of an ordered tokenizer.
        data: The demonstrations.
        out: Where the table is written.
        chunks: How many are encoded.
        sweeps: How many times each token may move; 0 is no search.
    """
    torch.set_num_threads(1)
    loaded = load_tokenizer(tokenizer)
    _, held_out = split_windows(open_dataset(data), loaded.space, *loaded.training_record.split())
    batch = draw_chunks(held_out, loaded, chunks)
    table = make_table([encode(loaded, batch, each) for each in sweeps], len(batch))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(to_markdown(table))
    Console(width=160).print(to_markdown(table), markup=False, highlight=False)


def encode(tokenizer: BaseTokenizer, chunks: ChunkBatch, sweeps: int) -> Outcome:
    """Return what a search of so many sweeps finds."""
    plain = chunks.encode(tokenizer)
    begin = time.process_time()
    tokens = chunks.encode(tokenizer, sweeps)
    seconds = time.process_time() - begin
    errors = model_errors(tokenizer, decode_prefixes(tokenizer, tokens, chunks), chunks)
    changed = float((tokens.ids != plain.ids).double().mean())
    return Outcome(sweeps, errors, changed, 1000 * seconds / len(chunks))


def make_table(outcomes: list[Outcome], chunks: int) -> Table:
    """Return a row for each number of sweeps."""
    lengths = range(1, outcomes[0].errors.shape[1] + 1)
    rows = tuple(
        (
            str(each.sweeps),
            *(f"{error:.4f}" for error in each.errors.mean(0).tolist()),
            f"{100 * monotone_share(each.errors):.0f}",
            f"{100 * each.changed:.0f}",
            f"{each.milliseconds:.1f}",
        )
        for each in outcomes
    )
    columns = ("sweeps", *(f"D_{k}" for k in lengths), "every token refines, %", "tokens changed, %", "ms per chunk")
    return Table(f"Encoding by search, {chunks} held-out chunks", columns, rows)


if __name__ == "__main__":
    tyro.cli(main)
