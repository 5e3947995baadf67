"""Which objective trains OAT best: the same computing time for each, held-out error of every prefix.

OMP_NUM_THREADS=1 python benchmarks/objectives.py DATA [--minutes 3] [--only uniform 1/D]

DATA is `oat collect metaworld --tasks box-close coffee-pull disassemble stick-pull --episodes 50 --seed 0 --out DATA`.
Each objective trains the cpu preset on one thread for the same processor time: the steps that fit into it come from
timing one step of each in turn, many times. Finished runs are not repeated, so that several processes can share
the work; the last call prints the whole table.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[1])  # tokenizers.py beside this would stand for the library of that name

import itertools
import json
import math
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.training_steps import Step, time_in_turn, training_step
from oat.tokenizers import OATTokenizer
from oat.tokenizers.config import OATConfig
from oat.tokenizers.space import ActionSpace
from oat.training.config import FitConfig
from oat.training.fitting import choose_config
from oat.training.tokenizers import fit_tokenizer


@dataclass(frozen=True)
class Objective:
    """Describe what is minimised in a step."""

    prefixes: int = 1
    """Decoded of every encoded chunk."""
    balance: float = 0.0
    """The weight of a prefix of length K is D_K to the power of minus this."""
    chunks: int = 64
    """Encoded in a step."""

    @property
    def size(self) -> str:
        return f"{self.prefixes} × {self.chunks}"

    @property
    def options(self) -> dict[str, Any]:
        """Return the objective as options of `oat fit`."""
        return {"keep": "uniform", "prefixes": self.prefixes, "balance": self.balance, "spread": 0.0}


PLAIN = Objective()
OBJECTIVES = {
    "uniform": PLAIN,
    "1/D": Objective(balance=1.0),
    "1/√D": Objective(balance=0.5),
    "D^-¼": Objective(balance=0.25),
    "2 prefixes": Objective(prefixes=2),
    "2 prefixes, 1/√D": Objective(prefixes=2, balance=0.5),
    "2 of half the chunks, 1/√D": Objective(prefixes=2, balance=0.5, chunks=32),
    "2 of half the chunks, D^-¼": Objective(prefixes=2, balance=0.25, chunks=32),
    "2 of half the chunks": Objective(prefixes=2, chunks=32),
}
_ROUNDS = 25
_NO_WORSE = 1.02


@dataclass(frozen=True)
class Outcome:
    """Hold what an objective led to."""

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
            outcome = train(OBJECTIVES[name], data, steps[OBJECTIVES[name].size], seed)
            record.write_text(json.dumps({"objective": name, **vars(outcome)}) + "\n")
    outcomes: dict[str, dict[int, Outcome]] = {}
    for file in sorted(out.glob("seed-*.json")):
        record, seed = json.loads(file.read_text()), int(file.stem.split("-")[1])
        name = record.pop("objective")
        outcomes.setdefault(name, {})[seed] = Outcome(**record)
    Console(width=140).print(make_table(outcomes))


def count_steps(minutes: float, record: Path) -> dict[str, int]:
    """Count how many steps of each size take the given processor time; weights cost nothing.

    Plain steps are timed first; what was added later is timed in turn with them.
    """
    counts: dict[str, int] = json.loads(record.read_text()) if record.exists() else {}
    for objective in OBJECTIVES.values():
        if objective.size not in counts:
            plain, other = time_steps(PLAIN, objective)
            whole = counts.setdefault(PLAIN.size, math.floor(minutes * 60 / plain))
            counts.setdefault(objective.size, math.floor(whole * plain / other))
    record.write_text(json.dumps(counts, ensure_ascii=False) + "\n")
    return counts


def time_steps(*objectives: Objective) -> list[float]:
    """Return the processor seconds of a step of each, taken in turn."""
    return time_in_turn([_training_step(objective) for objective in objectives], _ROUNDS)


def _training_step(objective: Objective) -> Step:
    config, recipe = choose_config(OATTokenizer, "cpu", objective.options)
    assert isinstance(config, OATConfig)
    assert recipe is not None
    return training_step(OATTokenizer(ActionSpace(32, 4), config), recipe, objective.chunks)


def train(objective: Objective, data: Path, steps: int, seed: int) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        begin = time.process_time()
        recipe: dict[str, Any] = {"steps": steps, "batch_size": objective.chunks, "validate_every": steps}
        fit_tokenizer(FitConfig.of(data, out, seed=seed, **objective.options, **recipe))
        last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    errors = [value for name, value in last.items() if name.startswith("validation/mse_")]
    return Outcome(steps, time.process_time() - begin, errors)


def make_table(outcomes: dict[str, dict[int, Outcome]]) -> Table:
    """Return a row per objective: errors relative to plain uniform's of the same seed, geometric means over seeds."""
    columns = (f"D_{k}" for k in range(1, 9))
    table = Table("objective", "seeds", "steps", *columns, "mean", "largest", box=box.MARKDOWN)
    plain = {seed: np.log(outcome.mse) for seed, outcome in outcomes["uniform"].items()}
    gains = {
        name: np.mean([np.log(outcome.mse) - plain[seed] for seed, outcome in several.items()], axis=0)
        for name, several in outcomes.items()
    }
    for name in sorted(gains, key=lambda name: float(gains[name].mean())):
        ratios, several = np.exp(gains[name]), outcomes[name]
        largest = f"{ratios.max():.3f}" + (" ✗" if ratios.max() > _NO_WORSE else "")
        steps = next(iter(several.values())).steps
        numbers = (f"{ratio:.3f}" for ratio in (*ratios, np.exp(gains[name].mean())))
        table.add_row(name, str(len(several)), str(steps), *numbers, largest)
    return table


if __name__ == "__main__":
    tyro.cli(main)
