"""Which objective trains OAT best: the same computing time for each, held-out error of every prefix.

OMP_NUM_THREADS=1 python benchmarks/objectives.py DATA [--minutes 4] [--only uniform 1/D]

DATA is `oat collect metaworld --tasks box-close coffee-pull disassemble stick-pull --episodes 50 --seed 0 --out DATA`.
Each objective trains the cpu preset on one thread for the same processor time: the steps that fit into it come from
timing one step of each in turn, many times. Finished objectives are not run again, so that several processes can share
the work; the last call prints the whole table.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

import json
import math
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from oat.tokenizers.fitting import fit_tokenizer, make_tokenizer
from oat.tokenizers.tokenizer import ActionSpace
from oat.training.config import FitConfig, RecipeOptions, TokenizerOptions

OBJECTIVES: dict[str, TokenizerOptions] = {
    "uniform": TokenizerOptions(keep="uniform", prefixes=1, balance=0.0),
    "1/D": TokenizerOptions(keep="uniform", prefixes=1, balance=1.0),
    "1/√D": TokenizerOptions(keep="uniform", prefixes=1, balance=0.5),
    "2 prefixes": TokenizerOptions(keep="uniform", prefixes=2, balance=0.0),
    "4 prefixes": TokenizerOptions(keep="uniform", prefixes=4, balance=0.0),
    "2 prefixes, 1/√D": TokenizerOptions(keep="uniform", prefixes=2, balance=0.5),
    "D^-¼": TokenizerOptions(keep="uniform", prefixes=1, balance=0.25),
    "2 prefixes, D^-¼": TokenizerOptions(keep="uniform", prefixes=2, balance=0.25),
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

    @property
    def score(self) -> float:
        return sum(map(math.log, self.mse)) / len(self.mse)


def main(
    data: tyro.conf.Positional[Path],
    minutes: float = 4.0,
    only: tuple[str, ...] = tuple(OBJECTIVES),
    out: Path = Path("results/objectives"),
) -> None:
    """Train with every objective and compare.

    Args:
        data: The demonstrations.
        minutes: Processor time for each objective.
        only: The objectives to train now.
        out: Where each objective's outcome is kept as JSON.
    """
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    steps = count_steps(minutes, out / "steps.json")
    for number, name in enumerate(OBJECTIVES):
        record = out / f"objective-{number}.json"
        if name in only and not record.exists():
            outcome = train(OBJECTIVES[name], data, steps[str(OBJECTIVES[name].prefixes)])
            record.write_text(json.dumps({"objective": name, **vars(outcome)}) + "\n")
    records = [json.loads(file.read_text()) for file in sorted(out.glob("objective-*.json"))]
    outcomes = {record.pop("objective"): Outcome(**record) for record in records}
    Console(width=140).print(make_table(outcomes))


def count_steps(minutes: float, record: Path) -> dict[str, int]:
    """How many steps with each number of prefixes take the given processor time; weights cost nothing."""
    if not record.exists():
        counts = sorted({options.prefixes or 1 for options in OBJECTIVES.values()})
        seconds: dict[int, list[float]] = {count: [] for count in counts}
        chunks, valid, space = torch.randn(64, 32, 4), torch.ones(64, 32, dtype=torch.bool), ActionSpace(32, 4)
        models = {count: make_tokenizer("oat", space, "cpu", TokenizerOptions(prefixes=count)) for count in counts}
        for round_number in range(_ROUNDS):
            for count, model in models.items():
                begin = time.process_time()
                torch.autograd.backward(model(chunks, valid, torch.Generator().manual_seed(round_number)).loss)
                seconds[count].append(time.process_time() - begin)
        steps = {count: math.floor(minutes * 60 / statistics.median(taken)) for count, taken in seconds.items()}
        record.write_text(json.dumps({"minutes": minutes, **steps}) + "\n")
    return dict(json.loads(record.read_text()))


def train(model: TokenizerOptions, data: Path, steps: int) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        out, begin = Path(folder) / "run", time.process_time()
        fit_tokenizer(FitConfig(data, out, model=model, recipe=RecipeOptions(steps=steps, validate_every=steps)))
        last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    errors = [value for name, value in last.items() if name.startswith("validation/mse_")]
    return Outcome(steps, time.process_time() - begin, errors)


def make_table(outcomes: dict[str, Outcome]) -> Table:
    """One row per objective; those that make some prefix more than 2 % worse than plain uniform are marked."""
    table = Table("objective", "steps", "seconds", *(f"D_{k}" for k in range(1, 9)), "mean ln D", box=box.MARKDOWN)
    base = outcomes.get("uniform")
    for name, outcome in sorted(outcomes.items(), key=lambda item: item[1].score):
        worse = base is not None and any(a > _NO_WORSE * b for a, b in zip(outcome.mse, base.mse, strict=True))
        errors = (f"{error:.4f}" for error in outcome.mse)
        mark = " (a prefix is worse than uniform's)" if worse else ""
        table.add_row(name + mark, str(outcome.steps), f"{outcome.seconds:.0f}", *errors, f"{outcome.score:.3f}")
    return table


if __name__ == "__main__":
    tyro.cli(main)
