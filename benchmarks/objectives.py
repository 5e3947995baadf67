"""Which objective trains OAT best: the same computing time for each, held-out error of every prefix.

OMP_NUM_THREADS=1 python benchmarks/objectives.py DATA [--minutes 3] [--only uniform 1/D]

DATA is `oat collect metaworld --tasks box-close coffee-pull disassemble stick-pull --episodes 50 --seed 0 --out DATA`.
Each objective trains the cpu preset on one thread for the same processor time: the steps that fit into it come from
timing one step of each in turn, many times. Finished runs are not repeated, so that several processes can share
the work; the last call prints the whole table.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

import itertools
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from oat.tokenizers.fitting import PRESETS, fit_tokenizer, make_tokenizer
from oat.tokenizers.tokenizer import ActionSpace
from oat.training.config import FitConfig, RecipeOptions, TokenizerOptions
from oat.training.optimizers import make_optimizers

OBJECTIVES: dict[str, TokenizerOptions] = {
    "uniform": TokenizerOptions(keep="uniform", prefixes=1, balance=0.0),
    "1/D": TokenizerOptions(keep="uniform", prefixes=1, balance=1.0),
    "1/√D": TokenizerOptions(keep="uniform", prefixes=1, balance=0.5),
    "D^-¼": TokenizerOptions(keep="uniform", prefixes=1, balance=0.25),
    "2 prefixes": TokenizerOptions(keep="uniform", prefixes=2, balance=0.0),
    "2 prefixes, 1/√D": TokenizerOptions(keep="uniform", prefixes=2, balance=0.5),
}
_ROUNDS = 25
_NO_WORSE = 1.02


@dataclass(frozen=True)
class Outcome:
    """What an objective led to."""

    steps: int
    seconds: float
    mse: list[float]
    """Held-out error of the prefixes 1 … H_l, in model space."""


def main(
    data: tyro.conf.Positional[Path],
    minutes: float = 3.0,
    only: tuple[str, ...] = tuple(OBJECTIVES),
    seeds: tuple[int, ...] = (0, 1, 2),
    out: Path = Path("results/objectives"),
) -> None:
    """Train with every objective and compare.

    Args:
        data: The demonstrations.
        minutes: Processor time for each objective.
        only: The objectives to train now.
        seeds: Each objective is trained once with each.
        out: Where each objective's outcome is kept as JSON.
    """
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    steps = count_steps(minutes, out / "steps.json")
    for seed, (number, name) in itertools.product(seeds, enumerate(OBJECTIVES)):
        record = out / f"seed-{seed}-objective-{number}.json"
        if name in only and not record.exists():
            outcome = train(OBJECTIVES[name], data, steps[str(OBJECTIVES[name].prefixes)], seed)
            record.write_text(json.dumps({"objective": name, **vars(outcome)}) + "\n")
    records = [json.loads(file.read_text()) for file in sorted(out.glob("seed-*.json"))]
    outcomes: dict[str, list[Outcome]] = {}
    for record in records:
        outcomes.setdefault(record.pop("objective"), []).append(Outcome(**record))
    Console(width=140).print(make_table(outcomes))


def count_steps(minutes: float, record: Path) -> dict[str, int]:
    """How many steps with each number of prefixes take the given processor time; weights cost nothing."""
    if not record.exists():
        counts = sorted({options.prefixes or 1 for options in OBJECTIVES.values()})
        seconds: dict[int, list[float]] = {count: [] for count in counts}
        steps = {count: _training_step(count) for count in counts}
        for _ in range(_ROUNDS):
            for count, step in steps.items():
                begin = time.process_time()
                step()
                seconds[count].append(time.process_time() - begin)
        fitting = {count: math.floor(minutes * 60 / statistics.median(taken)) for count, taken in seconds.items()}
        record.write_text(json.dumps({"minutes": minutes, **fitting}) + "\n")
    return dict(json.loads(record.read_text()))


def _training_step(prefixes: int) -> Callable[[], None]:
    """A step of the cpu preset's recipe, the optimizers' work included."""
    model = make_tokenizer("oat", ActionSpace(32, 4), "cpu", TokenizerOptions(prefixes=prefixes))
    optimizers = make_optimizers(model, {}, PRESETS["cpu"].training)
    chunks, valid, generator = torch.randn(64, 32, 4), torch.ones(64, 32, dtype=torch.bool), torch.Generator()

    def step() -> None:
        torch.autograd.backward(model(chunks, valid, generator).loss)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def train(model: TokenizerOptions, data: Path, steps: int, seed: int) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        out, begin = Path(folder) / "run", time.process_time()
        recipe = RecipeOptions(steps=steps, validate_every=steps)
        fit_tokenizer(FitConfig(data, out, seed=seed, model=model, recipe=recipe))
        last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    errors = [value for name, value in last.items() if name.startswith("validation/mse_")]
    return Outcome(steps, time.process_time() - begin, errors)


def make_table(outcomes: dict[str, list[Outcome]]) -> Table:
    """One row per objective: geometric means over seeds, and the largest ratio of an error to plain uniform's."""
    columns = (f"D_{k}" for k in range(1, 9))
    table = Table("objective", "seeds", "steps", *columns, "mean ln D", "worst / uniform", box=box.MARKDOWN)
    logs = {name: np.log([outcome.mse for outcome in several]).mean(0) for name, several in outcomes.items()}
    for name in sorted(logs, key=lambda name: float(logs[name].mean())):
        several, errors = outcomes[name], np.exp(logs[name])
        worst = float((errors / np.exp(logs["uniform"])).max())
        verdict = f"{worst:.3f}" + (" ✗" if worst > _NO_WORSE else "")
        numbers = (f"{error:.4f}" for error in errors)
        table.add_row(name, str(len(several)), str(several[0].steps), *numbers, f"{logs[name].mean():.3f}", verdict)
    return table


if __name__ == "__main__":
    tyro.cli(main)
