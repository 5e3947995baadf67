"""Collecting demonstrations: experts in worker processes, only successes kept, resumable at any moment.

Attempt i at a task is a function of (seed, task, i). The episodes kept are the first successful attempts, so the data
set does not depend on the number of workers or on interruptions. Every finished attempt is saved beside the output
(`.<name>.collecting-<settings>`) until the data set is complete; the same command continues from there.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from oat.data.lerobot import LeRobotWriter
from oat.data.provenance import read_provenance
from oat.data.shuffle import derive_key
from oat.errors import DatasetExists, SimulatorError, unknown_name
from oat.interfaces import Demonstration, Expert, ExpertConfig, Simulator
from oat.io.atomic import exclusive, staged_file
from oat.io.processes import worker_pool
from oat.io.progress import progress_bar
from oat.sims import load_simulator
from oat.sims.config import CollectConfig

_ATTEMPTS_PER_EPISODE, _MORE_ATTEMPTS = 4, 20  # an expert that needs more than this is broken, not unlucky


def attempt_seed(seed: int, task: str, attempt: int) -> int:
    """The seed of one attempt: tasks and data sets never share initial conditions by accident."""
    return derive_key(seed, task, attempt) % 2**31  # the simulators take 31 bits


@dataclass(frozen=True)
class AttemptStore:
    """Finished attempts on disk: a file of arrays for a success, an empty one for a failure."""

    folder: Path

    def path(self, task: str, attempt: int, success: bool) -> Path:
        return self.folder / task / f"{attempt:06d}.{'npz' if success else 'failed'}"

    def save(self, task: str, attempt: int, demonstration: Demonstration) -> None:
        with staged_file(self.path(task, attempt, demonstration.success), durable=False) as staging:
            if demonstration.success:
                with staging.open("wb") as file:
                    np.savez(file, allow_pickle=False, action=demonstration.actions, **dict(demonstration.observations))
            else:
                staging.touch()

    def load(self, task: str, attempt: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        with np.load(self.path(task, attempt, True)) as arrays:
            observations = {key: arrays[key] for key in arrays.files if key != "action"}
            return arrays["action"], observations

    def outcomes(self, task: str) -> dict[int, bool]:
        """Which attempts are finished, and whether they succeeded."""
        files = (self.folder / task).glob("[0-9]*.*")
        return {int(file.stem): file.suffix == ".npz" for file in files}


@lru_cache(maxsize=4)
def _expert(simulator: str, task: str, config: ExpertConfig) -> Expert:
    """Built once per worker and task."""
    return load_simulator(simulator).expert(task, config)


def run_attempt(task: str, attempt: int, config: CollectConfig, store: AttemptStore) -> tuple[bool, int]:
    """One attempt, in a worker process: whether it succeeded, and its length."""
    demonstration = _expert(config.simulator, task, config.expert).demonstrate(attempt_seed(config.seed, task, attempt))
    store.save(task, attempt, demonstration)
    return demonstration.success, len(demonstration.actions)


def collect_demonstrations(config: CollectConfig) -> None:
    """Collect `config.episodes` successful episodes of each task into a LeRobotDataset v3.0."""
    simulator = load_simulator(config.simulator)
    if config.tasks == ("all",):
        config = replace(config, tasks=simulator.tasks)
    for task in config.tasks:
        if task not in simulator.tasks:
            raise unknown_name(f"{simulator.name} task", task, simulator.tasks)
    writer = _open_writer(simulator, config)  # refuses what cannot be written before anything is collected
    store = AttemptStore(_attempts_folder(simulator, config))
    with exclusive(store.folder, f"collecting {config.out}"):
        schedule, finished = Schedule(config, {task: store.outcomes(task) for task in config.tasks}), False
        try:
            _run_attempts(schedule, store, writer)
            _assemble(writer, simulator, schedule, store)
            finished = True
        finally:
            if finished or not any(store.outcomes(task) for task in config.tasks):
                shutil.rmtree(store.folder, ignore_errors=True)
    added = len(config.tasks) * config.episodes
    result = f"wrote {added} episodes to {config.out}; `oat inspect` describes them"
    Console(soft_wrap=True).print(result, highlight=False, markup=False)


def _attempts_folder(simulator: Simulator, config: CollectConfig) -> Path:
    """Beside the output, one for each way of collecting: attempts made with other settings are never mixed in."""
    recipe = json.dumps([simulator.version, config.seed, asdict(config.expert)])
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:8]
    out = config.out.expanduser().resolve()
    return out.with_name(f".{out.name}.collecting-{digest}")


def _open_writer(simulator: Simulator, config: CollectConfig) -> LeRobotWriter:
    out = config.out.expanduser()
    if out.exists() and config.exists == "append":
        _refuse_repeated_seed(out, config)
    return LeRobotWriter(
        out,
        simulator.fps,
        cameras=config.camera_storage,
        exists=config.exists,
        robot_type=simulator.robot_type,
        action_names=simulator.action_names,
    )


@dataclass
class Schedule:
    """Which attempts to run: gaps an interruption left first, then new ones, never more than could be needed."""

    config: CollectConfig
    outcomes: dict[str, dict[int, bool]]
    running: set[tuple[str, int]] = field(default_factory=set)

    def kept(self, task: str) -> list[int]:
        """The first successful attempts, as many as episodes were asked for."""
        return sorted(attempt for attempt, success in self.outcomes[task].items() if success)[: self.config.episodes]

    @property
    def num_kept(self) -> int:
        return sum(len(self.kept(task)) for task in self.config.tasks)

    def next_attempt(self) -> tuple[str, int] | None:
        """The attempt to start now, or None while enough are running or done."""
        for task in self.config.tasks:
            mine = {attempt for name, attempt in self.running if name == task}
            known = self.outcomes[task].keys() | mine
            free = next(attempt for attempt in range(len(known) + 1) if attempt not in known)
            is_gap = free < max(self.outcomes[task], default=0)
            if is_gap or len(self.kept(task)) + len(mine) < self.config.episodes:
                self._check_limit(task, free)
                self.running.add((task, free))
                return task, free
        return None

    def _check_limit(self, task: str, attempts: int) -> None:
        if attempts >= _ATTEMPTS_PER_EPISODE * self.config.episodes + _MORE_ATTEMPTS:
            raise SimulatorError(
                f"the expert for {task!r} succeeded in only {len(self.kept(task))} of {attempts} attempts"
                f"{' (less --noise may help)' if self.config.expert.noise else ''}"
            )

    def finished(self, task: str, attempt: int, success: bool) -> None:
        self.running.remove((task, attempt))
        self.outcomes[task][attempt] = success


def _run_attempts(schedule: Schedule, store: AttemptStore, writer: LeRobotWriter) -> None:
    """Keep the workers busy until every task has its episodes."""
    config, steps, begin = schedule.config, 0, time.perf_counter()
    done = schedule.num_kept
    futures: dict[Future[tuple[bool, int]], tuple[str, int]] = {}
    with progress_bar("collecting", len(config.tasks) * config.episodes, done) as progress, _workers(config) as pool:
        while True:
            while len(futures) < 2 * config.workers and (attempt := schedule.next_attempt()):
                futures[pool.submit(run_attempt, *attempt, config, store)] = attempt
            if not futures:
                return
            for future in wait(futures, return_when=FIRST_COMPLETED).done:
                (task, number), (success, length) = futures.pop(future), future.result()
                schedule.finished(task, number, success)
                if success and steps == 0:
                    writer.check_episode(task, *store.load(task, number))  # does it fit the set it is appended to?
                steps += length
                rate = f"{task} · {steps / (time.perf_counter() - begin):.0f} steps/s"
                progress.advance(schedule.num_kept - done, rate)
                done = schedule.num_kept


@contextmanager
def _workers(config: CollectConfig) -> Iterator[ProcessPoolExecutor]:
    """Attempts are saved whole or not, so processes may end at any moment."""
    try:
        with worker_pool(config.workers) as pool:
            yield pool
    except BrokenProcessPool as error:
        raise SimulatorError(
            "a worker process died (out of memory?); finished attempts are kept, run the same command to continue"
        ) from error


def _assemble(writer: LeRobotWriter, simulator: Simulator, schedule: Schedule, store: AttemptStore) -> None:
    """Write the kept attempts, task after task, as one data set."""
    writer.record_provenance(_provenance(simulator, schedule))
    episodes = [(task, attempt) for task in schedule.config.tasks for attempt in schedule.kept(task)]
    with progress_bar("writing", len(episodes)) as progress, writer:
        for task, attempt in episodes:
            writer.add_episode(task, *store.load(task, attempt))
            progress.advance()


def _provenance(simulator: Simulator, schedule: Schedule) -> dict[str, Any]:
    """How the episodes came about; stored with the data set."""
    config = schedule.config
    return {
        "simulator": simulator.version,
        "expert": simulator.expert_kind,
        "seed": config.seed,
        "noise": config.expert.noise,
        "tasks": {
            task: {"episodes": len(schedule.kept(task)), "attempts": max(schedule.kept(task)) + 1}
            for task in config.tasks
        },
    }


def _refuse_repeated_seed(out: Path, config: CollectConfig) -> None:
    """Appending the same seed again would store the same episodes twice."""
    for earlier in read_provenance(out):
        if earlier.get("seed") == config.seed and set(config.tasks) & set(earlier.get("tasks", ())):
            raise DatasetExists(f"{out} already holds episodes of seed {config.seed}; append with another --seed")
