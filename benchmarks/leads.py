"""Ways to make ordering cheaper, each tried on the cpu preset of OAT with the same processor time.

OMP_NUM_THREADS=1 python benchmarks/leads.py DATA --out results/leads/NAME [--minutes 2] [--seeds 0] [--only today OAT×]

DATA is demonstrations in any format. The steps that fit into the time come from timing a step of each lead in turn with
one of today's. Finished runs are not repeated; the last call prints the whole table and writes it to OUT/table.md.
RVQ, which is not trained, stands beside them.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[1])  # tokenizers.py beside this would stand for the library of that name

import itertools
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
import tyro
from rich.console import Console

from benchmarks.lead_models import Lead, LedTokenizer
from benchmarks.training_steps import time_in_turn, training_step
from oat.data.chunks import Windows
from oat.data.episodes import open_dataset
from oat.data.normalize import Normalizer, action_statistics
from oat.nn.recipe import TrainConfig
from oat.tables.markdown import to_markdown
from oat.tables.table import Table
from oat.tokenizers.config import OATConfig, RVQConfig
from oat.tokenizers.measures import ChunkBatch, distortions, draw_chunks
from oat.tokenizers.oat import OATTokenizer
from oat.tokenizers.rvq import RVQTokenizer
from oat.tokenizers.space import ActionSpace
from oat.training.fitting import TokenizerTraining, choose_config, prepare
from oat.training.steps import train_in_memory
from oat.training.tokenizers import action_space, split_windows

LEADS = {
    "today": Lead(),
    "OAT×": Lead({"keep": "full"}),
    "plain pairs": Lead({"keep": "uniform"}),
    "distilled, ½": Lead(distil=0.5),
    "distilled": Lead(distil=1.0),
    "told K": Lead(tells_length=True),
    "noise for 30 %": Lead(noisy=0.3),
    "whole ½ → 2": Lead(whole=(0.5, 2.0)),
    "whole 2 → ½": Lead(whole=(2.0, 0.5)),
    "decorrelated": Lead(decorrelate=0.1),
    "principal": Lead(principal=True),
    "encoder rate 2": Lead(encoder_rate=2.0),
    "encoder rate ½": Lead(encoder_rate=0.5),
    "encoder of 4 layers": Lead({"encoder_layers": 4}),
    "batches of 16": Lead({"batch_size": 16}),
    "patches of 2": Lead(patch=2),
    "patches of 4": Lead(patch=4),
    "patches of 4, told K": Lead(patch=4, tells_length=True),
    "OAT×, patches of 4": Lead({"keep": "full"}, patch=4),
    "RVQ": Lead(residual=True),
    "sums": Lead(sums=True),
    "sums, balance 1": Lead({"balance": 1.0}, sums=True),
    "sums, patches of 4": Lead(sums=True, patch=4),
    "sums, balance 1, patches of 4": Lead({"balance": 1.0}, sums=True, patch=4),
    "sums, balance 1, patches of 4, whole 4": Lead({"balance": 1.0}, sums=True, patch=4, whole=(4.0, 4.0)),
}
_ROUNDS = 15
_CHUNKS = 1024  # held out, on which errors are measured
_PRINCIPAL_CHUNKS = 8192
_ALLOWED = 1.1  # times OAT×'s error of the whole: the rule by which an objective may be chosen


@dataclass(frozen=True)
class Outcome:
    """Hold what a lead led to."""

    lead: str
    steps: int
    seconds: float
    mse: list[float]
    """Held-out error of the prefixes 1 … H_l, in model space."""


@dataclass
class LedTraining(TokenizerTraining):
    """Train a tokenizer whose encoder may learn at another rate."""

    encoder_rate: float = 1.0

    def learning_rates(self) -> Mapping[str, float]:
        return {"encoder.": self.encoder_rate}


def main(
    data: tyro.conf.Positional[Path],
    out: Path,
    minutes: float = 2.0,
    only: tuple[str, ...] = tuple(LEADS),
    seeds: tuple[int, ...] = (0,),
) -> None:
    """Train with every lead and compare.

    Args:
        data: The demonstrations.
        out: Where each outcome is kept as JSON, and the table.
        minutes: Processor time for each.
        only: The leads to train now.
        seeds: Of the split, the weights and the batches; each lead is trained once with each.
    """
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    for seed, (number, (name, lead)) in itertools.product(seeds, enumerate(LEADS.items())):
        record = out / f"seed-{seed}-lead-{number}.json"
        if name in only and not record.exists():
            if lead.residual:
                outcome = fit_residual(name, data, seed)
            else:
                outcome = train(name, lead, data, count_steps(minutes, lead, data, out / "steps.json"), seed)
            record.write_text(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")
    outcomes: dict[str, dict[int, Outcome]] = {name: {} for name in LEADS}
    for file in sorted(out.glob("seed-*.json")):
        found = Outcome(**json.loads(file.read_text()))
        outcomes[found.lead][int(file.stem.split("-")[1])] = found
    text = to_markdown(make_table(outcomes))
    (out / "table.md").write_text(text)
    Console(width=160).print(text, markup=False, highlight=False)


def make(lead: Lead, space: ActionSpace, seed: int) -> tuple[LedTokenizer, TrainConfig]:
    """Return an untrained tokenizer for a lead, and the cpu preset's recipe."""
    config, recipe = choose_config(OATTokenizer, "cpu", lead.options)
    assert isinstance(config, OATConfig)
    assert recipe is not None
    torch.manual_seed(seed)
    return LedTokenizer(space, config, lead), replace(recipe, seed=seed)


def count_steps(minutes: float, lead: Lead, data: Path, record: Path) -> int:
    """Return how many steps take the given processor time, timed in turn with those of today's preset."""
    counts: dict[str, int] = json.loads(record.read_text()) if record.exists() else {}
    key = "today" if lead == LEADS["today"] else repr(lead)
    if key not in counts:
        space = ActionSpace(32, open_dataset(data).action_dim)
        steps = [training_step(*make(each, space, 0)) for each in (LEADS["today"], lead)]
        usual, own = time_in_turn(steps, _ROUNDS)
        whole = counts.setdefault("today", math.floor(minutes * 60 / usual))
        counts.setdefault(key, math.floor(whole * usual / own))
        record.write_text(json.dumps(counts, ensure_ascii=False, indent=1) + "\n")
    return counts[key]


def split(data: Path, seed: int) -> tuple[ActionSpace, Windows, Windows, Normalizer]:
    """Return the chunks' space, the windows to train on and those held out, and the range of the former."""
    episodes = open_dataset(data)
    space = action_space(episodes, 32, ActionSpace().transform)
    windows, held_out = split_windows(episodes, space, 0.1, seed)
    return space, windows, held_out, Normalizer.from_statistics(action_statistics(windows, space.transform), "min_max")


def train(name: str, lead: Lead, data: Path, steps: int, seed: int) -> Outcome:
    """Return the held-out errors after so many steps."""
    space, windows, held_out, normalizer = split(data, seed)
    model, recipe = make(lead, space, seed)
    model.normalizer = normalizer
    model.steps = steps
    chunks: ChunkBatch = draw_chunks(held_out, model, _CHUNKS)
    begin = time.process_time()
    if lead.principal:
        model.begin_with_components(model.to_model_space(draw_chunks(windows, model, _PRINCIPAL_CHUNKS).actions))
    task = LedTraining(model, chunks, lead.encoder_rate)
    trained = train_in_memory(task, windows, replace(recipe, steps=steps), progress=False).average.module.eval()
    seconds = time.process_time() - begin
    assert isinstance(trained, LedTokenizer)
    return Outcome(name, steps, seconds, distortions(trained, chunks).mean(0).tolist())


def fit_residual(name: str, data: Path, seed: int) -> Outcome:
    """Return the held-out errors of RVQ on the same split."""
    space, windows, held_out, normalizer = split(data, seed)
    begin = time.process_time()
    fitted = prepare(RVQTokenizer, RVQConfig(), windows, space, normalizer, seed)
    seconds = time.process_time() - begin
    return Outcome(name, 0, seconds, distortions(fitted, draw_chunks(held_out, fitted, _CHUNKS)).mean(0).tolist())


def make_table(outcomes: Mapping[str, Mapping[int, Outcome]]) -> Table:
    """Return a row per lead: errors, their geometric mean against today's, and the whole's against OAT×.

    All are geometric means over seeds, and ratios those of equal seeds.
    """
    rows = []
    for name, several in outcomes.items():
        if not several:
            continue
        mean = _against(several, outcomes["today"], slice(None))
        whole = _against(several, outcomes["OAT×"], slice(-1, None))
        errors = (f"{error:.3g}" for error in np.exp(np.mean([np.log(each.mse) for each in several.values()], 0)))
        mark = " ✓" if whole <= _ALLOWED else ""
        steps = str(next(iter(several.values())).steps or "—")
        rows.append((name, str(len(several)), steps, *errors, f"{mean:.3f}", f"{whole:.2f}{mark}"))
    columns = ("lead", "seeds", "steps", *(f"D_{k}" for k in range(1, 9)), "mean / today's", "D_8 / OAT×'s")
    note = f"mean: geometric, over the prefixes; ✓: the whole's error is at most {_ALLOWED} times OAT×'s"
    return Table("Leads towards cheaper ordering", columns, tuple(rows), (note,))


def _against(several: Mapping[int, Outcome], other: Mapping[int, Outcome], which: slice) -> float:
    """Return the geometric mean of some prefixes' errors in units of another lead's with the same seed."""
    ratios = [
        np.log(several[seed].mse[which]) - np.log(other[seed].mse[which]) for seed in several.keys() & other.keys()
    ]
    return float(np.exp(np.mean(ratios))) if ratios else math.nan


if __name__ == "__main__":
    tyro.cli(main)
