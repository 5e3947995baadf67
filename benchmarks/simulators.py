"""Measure how fast simulators are in one process, by its own processor time, which other load does not change.

OMP_NUM_THREADS=1 python benchmarks/simulators.py

Actions are random around holding still; a range goes from the slowest task to the fastest.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

import time

import numpy as np
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from oat.interfaces import Environment
from oat.sims import load_simulator

REACH = {"pusht": 100.0}  # pixels; an action is at most 1 elsewhere


def main(names: tuple[str, ...] = ("metaworld", "robomimic", "pusht", "libero"), steps: int = 100) -> None:
    """Measure simulators.

    Args:
        names: Simulators of `oat.sims.SIMULATORS`.
        steps: Steps that each rate is taken over.
    """
    titles = ("simulator", "steps/s, state", "steps/s, one camera", "reset, s", "build, s")
    table = Table(*titles, box=box.MARKDOWN)
    for name in names:
        simulator = load_simulator(name)
        cameras = () if simulator.main_camera is None else (simulator.main_camera,)
        rows = []
        for task in simulator.paper_tasks or simulator.tasks:
            begin = time.process_time()
            env = simulator.make(task)
            build = time.process_time() - begin
            blind, reset = measure(env, REACH.get(name, 1.0), steps)
            seeing, _ = measure(simulator.make(task, cameras), REACH.get(name, 1.0), steps)
            rows.append((blind, seeing, reset, build))
        table.add_row(simulator.version, *map(spread, zip(*rows)))
    Console(width=120).print(table)


def measure(env: Environment, reach: float, steps: int) -> tuple[float, float]:
    """Return the observed steps per second, and the seconds of a reset."""
    env.reset(0)
    noise = reach * np.random.default_rng(0).uniform(-1, 1, (steps + 10, len(env.hold()))).astype(np.float32)
    for step in range(10):  # the first few steps compile things and do not count
        env.step(env.hold() + noise[step])
    begin = time.process_time()
    for step in range(10, steps + 10):
        env.step(env.hold() + noise[step])
    stepped = time.process_time()
    env.reset(1)
    return steps / (stepped - begin), time.process_time() - stepped


def spread(values: tuple[float, ...]) -> str:
    """Return the smallest and the largest value as text, or one number where they agree."""
    low, high = (f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in (min(values), max(values)))
    return low if low == high else f"{low}–{high}"


if __name__ == "__main__":
    tyro.cli(main)
