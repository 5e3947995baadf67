"""Measure how fast simulators are in one process, by its own processor time, which other load does not change.

OMP_NUM_THREADS=1 python benchmarks/simulators.py

Actions are random around holding still; a range goes from the slowest task to the fastest. The last column is the rate
of steps that nobody observes against that of robosuite's own `step`, which the same process measures by turns.
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
from oat.sims.robosuite import RobosuiteEnv
from oat.sims.stepping import PlainStepper, Stepper

REACH = {"pusht": 100.0}  # pixels; an action is at most 1 elsewhere


def main(
    names: tuple[str, ...] = ("metaworld", "robomimic", "pusht", "libero", "robocasa"),
    steps: int = 100,
    tasks: int = 10,
) -> None:
    """Measure simulators.

    Args:
        names: Simulators of `oat.sims.SIMULATORS`.
        steps: Steps that each rate is taken over.
        tasks: The most tasks of each simulator.
    """
    titles = ("simulator", "steps/s, state", "steps/s, one camera", "reset, s", "build, s", "× robosuite's own")
    table = Table(*titles, box=box.MARKDOWN)
    for name in names:
        simulator = load_simulator(name)
        cameras = () if simulator.main_camera is None else (simulator.main_camera,)
        rows = []
        for task in (simulator.study_tasks or simulator.tasks)[:tasks]:
            begin = time.process_time()
            env = simulator.make(task)
            build = time.process_time() - begin
            blind, reset = measure(env, REACH.get(name, 1.0), steps)
            seeing, _ = measure(simulator.make(task, cameras), REACH.get(name, 1.0), steps)
            ratio = compare(env, steps) if isinstance(env, RobosuiteEnv) else float("nan")
            rows.append((blind, seeing, reset, build, ratio))
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


def compare(env: RobosuiteEnv, steps: int, turns: int = 3) -> float:
    """Return how many times faster the environment steps than robosuite does itself, unobserved, in turns.

    All turns go through the same states, so that of each step the quickest counts: others were disturbed by other load.
    """
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, len(env.hold()))).astype(np.float32)
    steppers: list[type[Stepper | PlainStepper]] = [Stepper, PlainStepper]
    spent = {stepper: np.full(steps, np.inf) for stepper in steppers}
    for stepper in steppers * turns:
        env.stepper = stepper
        env.reset(0)
        for number, action in enumerate(actions):
            begin = time.process_time()
            env.step(action, observe=False)
            spent[stepper][number] = min(spent[stepper][number], time.process_time() - begin)
    return float(spent[PlainStepper].sum() / spent[Stepper].sum())


def spread(values: tuple[float, ...]) -> str:
    """Return the smallest and the largest value as text, or one number where they agree."""
    low, high = (f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in (min(values), max(values)))
    return low if low == high else f"{low}–{high}"


if __name__ == "__main__":
    tyro.cli(main)
