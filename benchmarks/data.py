"""Measure what the data layer does per second: windows, opening, collecting; ratios come from one run.

OMP_NUM_THREADS=1 python benchmarks/data.py [--frames 10000000] [--tasks box-close coffee-pull disassemble stick-pull]
"""

import multiprocessing
import os
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import STATE, open_dataset
from oat.data.lerobot import LeRobotWriter
from oat.data.stream import stream
from oat.interfaces import Demonstration, ExpertConfig
from oat.sims import load_simulator
from oat.sims.collect import AttemptStore, attempt_seed, run_attempt
from oat.sims.config import CollectConfig
from oat.sims.metaworld import MetaWorldEnv

ACTION_DIM = 7
STATE_DIM = 14
HORIZON = 32
BATCH = 256
REPEATS = 5


def main(
    frames: int = 10_000_000,
    opened_frames: int = 1_000_000,
    tasks: tuple[str, ...] = ("box-close", "coffee-pull", "disassemble", "stick-pull"),
    episodes: int = 8,
    folder: Path | None = None,
) -> None:
    """Measure the data layer.

    Args:
        frames: Frames of the memory-mapped set that windows are drawn from.
        opened_frames: Frames of the LeRobot set that is opened.
        tasks: MetaWorld tasks to collect.
        episodes: Attempts per task and process.
        folder: Where to put the temporary sets (about 100 bytes per frame).
    """
    table = Table("measure", "value", "required", box=box.SIMPLE_HEAD)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for row in (
            *measure_windows(Path(name), frames),
            *measure_opening(Path(name), opened_frames),
            *measure_collecting(Path(name), tasks, episodes),
        ):
            table.add_row(*row)
    Console().print(table)


Row = tuple[str, str, str]


def measure_windows(folder: Path, frames: int) -> list[Row]:
    """Time shuffled batches with states and masks from a memory-mapped set, and measure the process's own memory."""
    path = folder / "large.npz"
    write_large(path, frames)
    before = anonymous_megabytes()
    episodes = open_dataset(path)
    opened = anonymous_megabytes()
    windows = Windows(episodes, WindowConfig(HORIZON, 2, (STATE,)))
    batches = stream(windows, BATCH, seed=0)
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(1000):
            next(batches)
        seconds.append(time.perf_counter() - begin)
    rates = [1000 * BATCH / s for s in seconds]
    path.unlink()
    shape = f"{frames:,} frames, batch {BATCH}, H_a {HORIZON}, D_a {ACTION_DIM}"
    return [
        (f"windows/s ({shape}), median of 5", f"{np.median(rates):,.0f}", "≥ 500,000"),
        (
            "extra anonymous memory, MB (opening; all)",
            f"{opened - before:.0f}; {anonymous_megabytes() - before:.0f}",
            "< 100",
        ),
    ]


def write_large(path: Path, frames: int) -> None:
    """Write random numbers in episodes of about 200 steps, without ever holding the set in memory."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(100, 300, size=frames // 100)
    ends = np.cumsum(lengths)
    ends = np.append(ends[ends < frames], frames)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, dim in (("actions", ACTION_DIM), ("state", STATE_DIM)):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": (frames, dim)}
                np.lib.format.write_array_header_1_0(file, header)
                for first in range(0, frames, 100_000):
                    rows = min(100_000, frames - first)
                    file.write(generator.standard_normal((rows, dim), np.float32).tobytes())
        with archive.open("episode_ends.npy", "w") as file:
            np.lib.format.write_array(file, ends)


def measure_opening(folder: Path, frames: int) -> list[Row]:
    """Time opening a LeRobot v3.0 set, which reads metadata and actions, then the first use of the states."""
    path = folder / "lerobot"
    generator = np.random.default_rng(0)
    with LeRobotWriter(path, 50) as writer:
        for _ in range(frames // 200):
            actions = generator.standard_normal((200, ACTION_DIM), np.float32)
            writer.add_episode("t", actions, {STATE: generator.standard_normal((200, STATE_DIM), np.float32)})
    begin = time.perf_counter()
    episodes = open_dataset(path)
    opened = time.perf_counter()
    episodes.observation(STATE)[np.arange(2)]
    return [
        (f"opening LeRobot v3.0, {frames:,} frames, s", f"{opened - begin:.2f}", "< 5"),
        ("first read of its states, s", f"{time.perf_counter() - opened:.2f}", ""),
    ]


def measure_collecting(folder: Path, tasks: tuple[str, ...], episodes: int) -> list[Row]:
    """Time collecting against stepping the simulator through the very same episodes and nothing else."""
    config = CollectConfig("metaworld", tasks, folder / "out", episodes)
    demonstrations = {}
    for task in tasks:
        expert = load_simulator("metaworld").expert(task, ExpertConfig())
        for number in range(episodes):
            demonstrations[task, number] = expert.demonstrate(attempt_seed(0, task, number))
        run_attempt(task, 999, config, AttemptStore(folder / "warm-up"))
        step_raw(task, 0, demonstrations[task, 0])
    steps = sum(len(d.actions) for d in demonstrations.values())
    collecting = np.zeros(REPEATS)
    stepping = np.zeros(REPEATS)
    for repeat in range(REPEATS):
        store = AttemptStore(folder / f"attempts-{repeat}")
        for (task, number), shown in demonstrations.items():  # in turn, so that other load falls on all alike
            collecting[repeat] += timed(lambda: run_attempt(task, number, config, store))  # noqa: B023
            stepping[repeat] += timed(lambda: step_raw(task, number, shown))  # noqa: B023
    two = parallel_speedup(tasks, episodes, folder)
    return [
        (
            f"collecting MetaWorld, steps/s per process ({len(demonstrations)} episodes)",
            f"{np.median(steps / collecting):,.0f}",
            "",
        ),
        (
            "… against the bare environment, same seeds and actions",
            f"{np.median(stepping / collecting):.2f} ×",
            "≥ 0.90",
        ),
        ("two processes against one", f"{two:.2f} ×", "≥ 1.7"),
    ]


def timed(work: Callable[[], object]) -> float:
    """Return CPU seconds of this process, which other load on the machine disturbs less than wall-clock time."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


_ENVIRONMENTS: dict[str, MetaWorldEnv] = {}


def step_raw(task: str, number: int, demonstration: Demonstration) -> None:
    """Reset and step MetaWorld's own environment object through a demonstration, and record nothing."""
    if task not in _ENVIRONMENTS:
        _ENVIRONMENTS[task] = MetaWorldEnv(task)
    env = _ENVIRONMENTS[task]._env
    env.seed(attempt_seed(0, task, number))
    env.reset()
    for action in demonstration.actions:
        env.step(action)


def parallel_speedup(tasks: tuple[str, ...], episodes: int, folder: Path) -> float:
    """Return the steps per second of two processes over those of one, all doing the same work, after starting up."""
    spawn = multiprocessing.get_context("spawn")
    rates = {}
    for processes in (1, 2):
        with spawn.Pool(processes) as pool:
            pool.map(_warm_up, [(tasks, folder) for _ in range(processes)], chunksize=1)
            work = [(tasks, episodes, folder / f"parallel-{processes}-{number}") for number in range(processes)]
            begin = time.perf_counter()
            steps = pool.map(_collect_all, work, chunksize=1)
            rates[processes] = sum(steps) / (time.perf_counter() - begin)
    return rates[2] / rates[1]


def _warm_up(arguments: tuple[tuple[str, ...], Path]) -> None:
    tasks, folder = arguments
    for task in tasks:
        run_attempt(task, 999, CollectConfig("metaworld", tasks, folder), AttemptStore(folder / f"w-{os.getpid()}"))


def _collect_all(arguments: tuple[tuple[str, ...], int, Path]) -> int:
    tasks, episodes, folder = arguments
    config = CollectConfig("metaworld", tasks, folder, episodes)
    attempts = [(task, number) for task in tasks for number in range(episodes)]
    return sum(run_attempt(*attempt, config, AttemptStore(folder))[1] for attempt in attempts)


def anonymous_megabytes() -> float:
    """Return this process's resident memory that is not backed by files (RssAnon), in megabytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return float("nan")


if __name__ == "__main__":
    tyro.cli(main)
