"""How many tokens change when a chunk begins one step later or is slightly noised, and what a smoothness term costs.

OMP_NUM_THREADS=1 python benchmarks/stability.py DATA [--minutes 2] [--only "OAT" "QueST, smooth 1"]

DATA is `oat collect metaworld --tasks box-close coffee-pull disassemble stick-pull --episodes 50 --seed 0 --out DATA`.
Each learned tokenizer is the cpu preset, trained on one thread for the same processor time: the steps that fit into it
come from timing one step of each in turn, many times. Finished runs are not repeated; the last call prints all tables.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[1])  # tokenizers.py beside this would stand for the library of that name

import json
import math
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.training_steps import Step, time_in_turn, training_step
from oat.data.episodes import open_dataset
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.autoencoder import AutoencoderTokenizer
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.measures import distortions, draw_chunks
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.stability import Flips, Stability, draw_neighbours, measure_stability
from oat.training.config import FitConfig
from oat.training.fitting import choose_config
from oat.training.tokenizers import fit_tokenizer, split_windows


@dataclass(frozen=True)
class Variant:
    """Describe a tokenizer to fit."""

    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    """Departures from the cpu preset, named as on the command line."""

    @property
    def trained(self) -> bool:
        return TOKENIZERS.config(self.kind).trained()

    @property
    def work(self) -> str:
        """Return a name that variants share whose steps take the same time: a term's weight costs nothing."""
        return " ".join([self.kind, *self.options])


VARIANTS = {
    "OAT": Variant("oat"),
    "OAT, smooth 0.1": Variant("oat", {"smooth": 0.1}),
    "OAT, smooth 1": Variant("oat", {"smooth": 1.0}),
    "QueST": Variant("quest"),
    "QueST, smooth 0.1": Variant("quest", {"smooth": 0.1}),
    "QueST, smooth 1": Variant("quest", {"smooth": 1.0}),
    "OAT×": Variant("oat", {"keep": "full"}),
    "FAST": Variant("fast"),
    "Bin": Variant("bin"),
}
_ROUNDS = 25
_CHUNKS = 2048  # held out, on which everything is measured
_SHOWN = 8  # token positions


@dataclass(frozen=True)
class Outcome:
    """Hold what was measured of a tokenizer."""

    steps: int
    seconds: float
    mse: list[float]
    """Held-out error of each prefix that decodes, in model space."""
    stability: Stability


def main(
    data: tyro.conf.Positional[Path],
    minutes: float = 2.0,
    only: tuple[str, ...] = tuple(VARIANTS),
    seed: int = 0,
    out: Path = Path("results/stability"),
) -> None:
    """Fit every tokenizer and compare.

    Args:
        data: The demonstrations.
        minutes: Processor time for each tokenizer that is trained.
        only: The tokenizers to fit now.
        seed: Of the split, the weights and the batches.
        out: Where each tokenizer's outcome is kept as JSON.
    """
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    steps = count_steps(minutes, out / "steps.json")
    outcomes = {}
    for number, (name, variant) in enumerate(VARIANTS.items()):
        record = out / f"seed-{seed}-variant-{number}.json"
        if name in only and not record.exists():
            outcome = fit(variant, data, steps.get(variant.work, 0), seed)
            record.write_text(json.dumps({"variant": name, **asdict(outcome)}) + "\n")
        if record.exists():
            outcomes[name] = read_outcome(record)
    for table in make_tables(outcomes):
        Console(width=140).print(table)


def count_steps(minutes: float, record: Path) -> dict[str, int]:
    """Count how many steps of each work take the given processor time."""
    if record.exists():
        counts: dict[str, int] = json.loads(record.read_text())
        return counts
    steps = {variant.work: _training_step(variant) for variant in VARIANTS.values() if variant.trained}
    seconds = time_in_turn(list(steps.values()), _ROUNDS)
    counts = {work: math.floor(minutes * 60 / taken) for work, taken in zip(steps, seconds, strict=True)}
    record.write_text(json.dumps(counts) + "\n")
    return counts


def _training_step(variant: Variant) -> Step:
    kind = TOKENIZERS[variant.kind]
    config, recipe = choose_config(kind, "cpu", variant.options)
    assert recipe is not None
    model = kind(ActionSpace(32, 4), config.for_horizon(32))  # type: ignore[call-arg]  # every kind takes its configuration
    assert isinstance(model, AutoencoderTokenizer)
    return training_step(model, recipe)


def fit(variant: Variant, data: Path, steps: int, seed: int) -> Outcome:
    """Fit a tokenizer and measure it on the episodes that were held out."""
    recipe: dict[str, Any] = {"steps": steps, "validate_every": steps} if variant.trained else {}
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        fit_tokenizer(FitConfig.of(data, path, variant.kind, seed=seed, **variant.options, **recipe))
        seconds = time.process_time() - begin
        tokenizer = load_tokenizer(path)
    _, held_out = split_windows(open_dataset(data), tokenizer.space, *tokenizer.training_record.split())
    generator = torch.Generator().manual_seed(seed)
    stability = measure_stability(tokenizer, *draw_neighbours(held_out, tokenizer, _CHUNKS), generator)
    errors = distortions(tokenizer, draw_chunks(held_out, tokenizer, _CHUNKS)).mean(0).tolist()
    return Outcome(steps, seconds, errors, stability)


def read_outcome(record: Path) -> Outcome:
    """Return what `main` kept."""
    values = json.loads(record.read_text())
    values.pop("variant")
    stability = values.pop("stability")
    shifted = Flips(**stability.pop("shifted"))
    noised = Flips(**stability.pop("noised"))
    return Outcome(**values, stability=Stability(shifted=shifted, noised=noised, **stability))


def make_tables(outcomes: dict[str, Outcome]) -> Iterable[Table]:
    """Yield a table of each change of the chunks, and one of errors."""
    yield flip_table("one step later", {name: each.stability.shifted for name, each in outcomes.items()})
    yield flip_table("noised", {name: each.stability.noised for name, each in outcomes.items()})
    errors = Table("held-out error", "steps", *(f"D_{k}" for k in range(1, _SHOWN + 1)), box=box.MARKDOWN)
    for name, each in outcomes.items():
        # What has no prefixes has one error, that of all its tokens.
        blank = [""] * (_SHOWN - len(each.mse))
        steps = str(each.steps) if each.steps else "—"
        errors.add_row(name, steps, *blank, *(f"{error:.2e}" if error < 1e-3 else f"{error:.4f}" for error in each.mse))
    yield errors


def flip_table(change: str, flips: dict[str, Flips]) -> Table:
    """Return the share of tokens that differ, of all and at the first positions, and how far they go."""
    positions = (f"token {k}" for k in range(1, _SHOWN + 1))
    table = Table(f"{change}: % that differ", "all", *positions, "levels", box=box.MARKDOWN)
    for name, each in flips.items():
        levels = f"{statistics.fmean(each.levels):.2f}" if each.levels else "—"
        shares = (f"{100 * share:.0f}" for share in each.differ[:_SHOWN])
        table.add_row(name, f"{100 * each.share():.0f}", *shares, levels)
    return table


if __name__ == "__main__":
    tyro.cli(main)
