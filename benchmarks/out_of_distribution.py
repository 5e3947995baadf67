"""How tokenizers do outside of what they were fitted to: three tasks of a data set are fitted, the fourth is measured.

OMP_NUM_THREADS=1 python benchmarks/out_of_distribution.py DATA --out results/out-of-distribution [--minutes 1]

DATA is demonstrations of several tasks, such as `oat collect metaworld --tasks box-close coffee-pull disassemble
stick-pull --out DATA`. OAT and QueST are the cpu preset, trained on one thread for the steps that `--minutes` of
processor time allow. Finished runs are not repeated; the last call prints the table and writes it to OUT/table.md.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import Episodes, open_dataset
from oat.data.splits import split_episodes
from oat.tables.markdown import to_markdown
from oat.tables.table import Table
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.measures import ChunkBatch, distortions, draw_chunks
from oat.tokenizers.space import ActionSpace

KINDS = ("oat", "rvq", "quest", "fast", "bin")
_HORIZON = 32
_CHUNKS = 1024  # on which errors are measured, inside and outside
_TIMED = 8  # steps after which the pace is known


@dataclass(frozen=True)
class Outcome:
    """Hold the errors of a tokenizer on tasks that it was fitted to, and on one that it was not."""

    kind: str
    task: str
    """The task that was left out."""
    steps: int
    inside: float
    """Mean squared error in model space on held-out episodes of the fitted tasks."""
    outside: float
    unusual: float
    """Share of the other task's chunks beyond the error that 99 % of the held-out ones stay below."""
    clipped: float
    """Share of the other task's numbers outside the fitted range."""


def main(
    data: tyro.conf.Positional[Path],
    out: Path,
    minutes: float = 1.0,
    tasks: tuple[str, ...] = (),
    kinds: tuple[str, ...] = KINDS,
    seed: int = 0,
) -> None:
    """Leave out one task after the other, fit to the rest, and measure on it.

    Args:
        data: The demonstrations.
        out: Where each outcome is kept as JSON, and the table.
        minutes: Processor time of each training.
        tasks: The tasks to leave out; all by default.
        kinds: The kinds of tokenizers.
        seed: Of the split, the weights and the batches.
    """
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    episodes = open_dataset(data)
    names = [episodes.task(number) for number in range(len(episodes.lengths))]
    for task in tasks or tuple(dict.fromkeys(names)):
        for kind in kinds:
            record = out / f"{task}-{kind}-seed-{seed}.json".replace(" ", "-")
            if not record.exists():
                outcome = measure(kind, task, episodes, np.array(names) == task, minutes, seed)
                record.write_text(json.dumps(asdict(outcome)) + "\n")
    outcomes = [Outcome(**json.loads(file.read_text())) for file in sorted(out.glob("*.json"))]
    text = to_markdown(make_table(outcomes))
    (out / "table.md").write_text(text)
    Console(width=160).print(text, markup=False, highlight=False)


def measure(kind: str, task: str, episodes: Episodes, left_out: np.ndarray, minutes: float, seed: int) -> Outcome:
    """Fit a tokenizer to the tasks that are not left out, and measure it on both sides."""
    rest = episodes.select(np.flatnonzero(~left_out))
    train_ids, held_out_ids = split_episodes(rest, 0.1, seed)
    window = WindowConfig(_HORIZON, 1, ())
    parts = [rest.select(train_ids), rest.select(held_out_ids), episodes.select(np.flatnonzero(left_out))]
    reader = TOKENIZERS["bin"](ActionSpace(_HORIZON, episodes.action_dim))  # it only cuts chunks
    sources = [Windows(part, window) for part in parts]
    taught = draw_chunks(sources[0], reader)
    inside, outside = (draw_chunks(source, reader, _CHUNKS) for source in sources[1:])
    tokenizer, steps = fit(kind, taught, minutes, seed)
    within = distortions(tokenizer, inside)[:, -1]
    beyond = distortions(tokenizer, outside)[:, -1]
    clipped = outside.encode(tokenizer).clipped
    assert clipped is not None
    unusual = float((beyond > within.quantile(0.99)).double().mean())
    return Outcome(kind, task, steps, float(within.mean()), float(beyond.mean()), unusual, float(clipped.mean()))


def fit(kind: str, chunks: ChunkBatch, minutes: float, seed: int) -> tuple[BaseTokenizer, int]:
    """Return the tokenizer after the steps that the processor time allows, at the pace of its first ones."""
    options: dict[str, Any] = {"seed": seed, "validation": 0.0, "progress": False}
    if not TOKENIZERS.config(kind).trained():
        return TOKENIZERS[kind].fit(chunks.actions, chunks.valid, **options), 0
    few = chunks[range(256)]
    begin = time.process_time()
    TOKENIZERS[kind].fit(few.actions, few.valid, steps=_TIMED, **options)
    steps = int(60 * minutes * _TIMED / (time.process_time() - begin))
    return TOKENIZERS[kind].fit(chunks.actions, chunks.valid, steps=steps, **options), steps


def make_table(outcomes: list[Outcome]) -> Table:
    """Return a row for each tokenizer and task."""
    rows = tuple(
        (
            TOKENIZERS.config(each.kind).label,
            each.task,
            str(each.steps) if each.steps else "—",
            f"{each.inside:.2e}",
            f"{each.outside:.2e}",
            f"{each.outside / each.inside:.1f}",
            f"{100 * each.unusual:.0f}",
            f"{100 * each.clipped:.1f}",
        )
        for each in sorted(outcomes, key=lambda each: (KINDS.index(each.kind), each.task))
    )
    columns = ("tokenizer", "left out", "steps", "error inside", "error outside", "ratio", "unusual, %", "clipped, %")
    note = "unusual: chunks of the task left out whose error is above what 99 % of the held-out chunks stay below"
    return Table("Fitted to three tasks, measured on the fourth", columns, rows, (note,))


if __name__ == "__main__":
    tyro.cli(main)
