"""Measure how often scripted experts succeed, and how long their episodes are.

    python benchmarks/experts.py libero --attempts 10
    python benchmarks/experts.py robocasa --tasks CloseDrawer --attempts 10 --first 10

One line is printed for every attempt and one, a row of a table, for every task. Attempts are those of `oat collect`
with the same seed.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

import time
from dataclasses import dataclass

import numpy as np
import tyro
from rich.console import Console

from oat.interfaces import ExpertConfig
from oat.sims import load_simulator
from oat.sims.collect import attempt_seed


@dataclass(frozen=True)
class Config:
    """Configure what is measured."""

    simulator: tyro.conf.Positional[str]
    """Which benchmark."""
    tasks: tuple[str, ...] = ()
    """Which tasks; none means all."""
    attempts: int = 10
    """Attempts per task."""
    first: int = 0
    """The number of the first one."""
    seed: int = 0
    """The seed of `oat collect`."""
    noise: float = 0.0
    """Standard deviation of noise added to actions."""


def main(config: Config) -> None:
    """Let the experts make their attempts, and print what came of them."""
    simulator = load_simulator(config.simulator)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for task in config.tasks or simulator.tasks:
        expert = simulator.expert(task, ExpertConfig(noise=config.noise))
        lengths = []
        for attempt in range(config.first, config.first + config.attempts):
            begin = time.perf_counter()
            shown = expert.demonstrate(attempt_seed(config.seed, task, attempt))
            steps = len(shown.actions)
            rate = steps / (time.perf_counter() - begin)
            console.print(f"{task} {attempt} {shown.success} {steps} {rate:.0f}/s")
            lengths += [steps] if shown.success else []
        spread = f"{np.mean(lengths):.0f} ({min(lengths)}–{max(lengths)})" if lengths else "–"
        console.print(f"| {task} | {len(lengths)} of {config.attempts} | {spread} |")


if __name__ == "__main__":
    main(tyro.cli(Config))
