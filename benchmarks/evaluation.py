"""What the harness costs: a policy's rollouts against the bare simulators stepping through the very same episodes.

OMP_NUM_THREADS=1 python benchmarks/evaluation.py

MetaWorld with states, the cpu preset's OAT policy with all eight tokens (weights are random, which changes no timing),
two cores. Both take turns, so that other load on the machine falls on both alike.
"""

import sys
from pathlib import Path

# run as a script, tokenizers.py beside it would stand for the library of that name
sys.path = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]

import multiprocessing
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import STATE, Episodes
from oat.evaluation.protocol import find_protocol
from oat.evaluation.records import EpisodeKey
from oat.evaluation.rollout import Episode, Rollout
from oat.evaluation.workers.pool import EnvironmentPool, Lost, Slot
from oat.evaluation.workers.processes import LocalProcesses, PipeLink
from oat.evaluation.workers.worker import Answer, Message, Reset, Segment
from oat.policies import AutoregressivePolicy, TokenDecoding
from oat.policies.config import AutoregressiveConfig
from oat.policies.context import describe_context
from oat.sims.metaworld import ACTION_DIM, STATE_DIM, MetaWorldEnv
from oat.tokenizers import OATTokenizer

CORES = 2
HORIZON = 32
Played = tuple[int, np.ndarray]
"""An episode's condition and its actions."""


def main(task: str = "box-close", episodes: int = 40, steps: int = 500, repeats: int = 5, batch: int = 16) -> None:
    """Measure rollouts.

    Args:
        task: A MetaWorld task.
        episodes: Episodes per turn.
        steps: The time limit, which an untrained policy always meets.
        repeats: Turns.
        batch: Chunks that the policy computes together.
    """
    torch.set_num_threads(1)
    policy = make_policy(task)
    turns = []
    with closing(WatchedPool(steps, batch)) as ours, multiprocessing.get_context("spawn").Pool(CORES) as bare:
        ours.warm_up(task)
        replay(bare, task, [(0, np.zeros((100, ACTION_DIM), np.float32))] * CORES)
        for _ in range(repeats):
            cost, played = roll_out(policy, ours, task, episodes, batch)
            turns.append((cost, replay(bare, task, played)))
    table = Table("measure", "value", "required", box=box.MARKDOWN)
    for row in summarize(turns):
        table.add_row(*row)
    Console(width=120).print(table)


class Cost:
    """Hold the steps taken between two moments, and the seconds that they took: on the clock, and of processors."""

    def __init__(self, processes: Sequence[int]) -> None:
        self._processes = processes
        self.steps = 0
        self._begin = time.perf_counter()
        self._cpu = cpu_seconds(processes)

    def stop(self, steps: int) -> "Cost":
        """Stop the clocks, and return the cost of so many steps."""
        self.steps = steps
        self.seconds = time.perf_counter() - self._begin
        self.cpu = cpu_seconds(self._processes) - self._cpu
        return self

    @property
    def rate(self) -> float:
        """Return the steps per second on the clock."""
        return self.steps / self.seconds


def cpu_seconds(processes: Sequence[int]) -> float:
    """Return what these processes have taken of processors since they were started."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # user and system time
    return ticks / os.sysconf("SC_CLK_TCK")


class WatchedPool(EnvironmentPool[PipeLink]):
    """Remember what was executed, so that the bare simulators can execute the same."""

    def __init__(self, steps: int, batch: int) -> None:
        protocol = replace(find_protocol("metaworld"), max_steps=steps)
        super().__init__(LocalProcesses(protocol), CORES, slots_per_process=batch)
        self.played: dict[Slot, list[tuple[int, list[np.ndarray]]]] = defaultdict(list)

    @property
    def process_ids(self) -> list[int]:
        """Return the processes that simulate, to ask the system what they took."""
        return [int(link._process.pid or 0) for link in self._links.values()]

    def send(self, slot: Slot, message: Message) -> None:
        if isinstance(message, Reset):
            self.played[slot].append((message.condition, []))
        super().send(slot, message)

    def wait(self) -> list[tuple[Slot, Answer | Lost]]:
        answers = super().wait()
        for slot, answer in answers:
            assert isinstance(answer, Segment), answer
            if len(answer.executed):
                self.played[slot][-1][1].append(answer.executed)
        return answers

    def warm_up(self, task: str) -> None:
        """Start all processes and build all environments before the clock runs."""
        for slot in self.slots:
            self.send(slot, Reset(task, 0))
        left = len(self.slots)
        while left:
            left -= len(self.wait())


def make_policy(task: str) -> AutoregressivePolicy:
    """Return an untrained policy of the cpu preset's size."""
    generator = np.random.default_rng(0)
    actions = generator.uniform(-1, 1, (2000, ACTION_DIM)).astype(np.float32)
    states = generator.normal(size=(2000, STATE_DIM)).astype(np.float32)
    episodes = Episodes.from_arrays(actions, [100] * 20, [task] * 20, observations={STATE: states})
    windows = Windows(episodes, WindowConfig(HORIZON, 2))
    chunks = windows[np.arange(len(windows))]
    tokenizer = OATTokenizer.fit(chunks.actions, chunks.valid_mask, preset="cpu", steps=0, progress=False)
    return AutoregressivePolicy(
        describe_context(episodes, (STATE,)), tokenizer, AutoregressiveConfig.presets()["cpu"].model
    ).eval()


def roll_out(
    policy: AutoregressivePolicy, pool: WatchedPool, task: str, episodes: int, batch: int
) -> tuple[Cost, list[Played]]:
    """Return what the rollouts took, and the episodes as they went."""
    keys = [EpisodeKey("", "oat", 0, "", "K=8", task, "selection", number, 0) for number in range(episodes)]
    pool.played.clear()
    cost = Cost([os.getpid(), *pool.process_ids])
    rollout = Rollout(policy, pool, batch, lambda record, video: None, find_protocol("metaworld"))
    rollout.run(Episode(key, TokenDecoding(8), task) for key in keys)
    played = [
        (condition, np.concatenate(parts)) for played_in in pool.played.values() for condition, parts in played_in
    ]
    return cost.stop(sum(len(actions) for _, actions in played)), played


def replay(pool: Any, task: str, played: Sequence[Played]) -> Cost:
    """Execute the same episodes in bare simulators, one per core, and return what that took."""
    cost = Cost([process.pid for process in pool._pool])
    pool.starmap(_step, [(task, *episode) for episode in played], chunksize=1)
    return cost.stop(sum(len(actions) for _, actions in played))


@cache
def _bare(task: str) -> Any:
    return MetaWorldEnv(task)._env


def _step(task: str, condition: int, actions: np.ndarray) -> None:
    """Reset and step MetaWorld's own environment object, nothing else."""
    env = _bare(task)
    env.seed(condition)
    env.reset()
    for action in actions:
        env.step(action)


def summarize(turns: Sequence[tuple[Cost, Cost]]) -> list[tuple[str, str, str]]:
    """Return the rows of the table: medians over the turns."""
    ours, bare = (statistics.median(turn[side].rate for turn in turns) for side in (0, 1))
    clock = statistics.median(ours.rate / bare.rate for ours, bare in turns)
    cpu = statistics.median((bare.cpu / bare.steps) / (ours.cpu / ours.steps) for ours, bare in turns)
    return [
        ("rollouts with the cpu preset's OAT policy, K = 8, steps/s", f"{ours:,.0f}", ""),
        (f"bare simulators on {CORES} cores, same episodes, steps/s", f"{bare:,.0f}", ""),
        ("rollouts against bare simulators, by the clock", f"{clock:.2f} ×", "≥ 0.60"),
        ("… by processor time per step", f"{cpu:.2f} ×", ""),
        ("250 episodes of 500 steps, minutes", f"{250 * 500 / ours / 60:.1f}", "minutes, not hours"),
    ]


if __name__ == "__main__":
    tyro.cli(main)
