"""Collect demonstrations: experts act in worker processes, successes are kept, and any interruption can be resumed.

Attempt i at a task is a function of (seed, task, i). The episodes kept are the first successful attempts, so the data
set does not depend on the number of workers or on interruptions. Every finished attempt is saved beside the output
(`.<name>.collecting-<settings>`) until the data set is complete; the same command continues from there.
"""

import hashlib
import json
import shutil
import time
import zipfile
import zlib
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
from oat.errors import DatasetExists, SimulatorError
from oat.interfaces import Demonstration, Expert, ExpertConfig, Simulator
from oat.io.atomic import staged_file
from oat.io.locks import exclusive
from oat.io.notes import note
from oat.io.processes import worker_pool
from oat.io.progress import progress_bar
from oat.sims import find_simulator, load_simulator
from oat.sims.config import CollectConfig

# An expert that needs more attempts than this is broken, not unlucky.
_ATTEMPTS_PER_EPISODE = 4
_MORE_ATTEMPTS = 20


def attempt_seed(seed: int, task: str, attempt: int) -> int:
    """Return the seed of one attempt; tasks and data sets never share initial conditions by accident."""
    return derive_key(seed, task, attempt) % 2**31  # the simulators take 31 bits


@dataclass(frozen=True)
class AttemptStore:
    """Keep finished attempts on disk: a file of arrays for a success, an empty one for a failure."""

    folder: Path

    def path(self, task: str, attempt: int, success: bool) -> Path:
        """Return the file that holds an attempt, or that says it failed."""
        return self.folder / task / f"{attempt:06d}.{'npz' if success else 'failed'}"

    def save(self, task: str, attempt: int, demonstration: Demonstration) -> None:
        """Write an attempt as a whole or not at all, so that a worker may be killed at any moment."""
        # Not durable: an attempt that a power failure loses is made again, and waiting for the disk would be slow.
        with staged_file(self.path(task, attempt, demonstration.success), durable=False) as staging:
            if demonstration.success:
                with staging.open("wb") as file:
                    np.savez(file, allow_pickle=False, action=demonstration.actions, **dict(demonstration.observations))
            else:
                staging.touch()

    def load(self, task: str, attempt: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the actions and observations of a successful attempt."""
        # Opened here, because numpy leaves a file open that it cannot read.
        with self.path(task, attempt, True).open("rb") as file, np.load(file) as arrays:
            observations = {key: arrays[key] for key in arrays.files if key != "action"}
            return arrays["action"], observations

    def outcomes(self, task: str) -> dict[int, bool]:
        """Return which attempts at a task are finished, and whether they succeeded."""
        files = (self.folder / task).glob("[0-9]*.*")
        return {int(file.stem): file.suffix == ".npz" for file in files}

    def remove_damaged(self, task: str) -> None:
        """Remove what a power failure or the disk spoilt of earlier attempts, which are then made again."""
        for attempt, success in sorted(self.outcomes(task).items()):
            try:
                if success:
                    self.load(task, attempt)
            except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
                file = self.path(task, attempt, success)
                note(f"{file} is damaged ({type(error).__name__}: {error}); the attempt is made again")
                file.unlink()


@lru_cache(maxsize=4)
def _expert(simulator: type[Simulator], task: str, config: ExpertConfig) -> Expert:
    """Return the expert of a task, which is built once per worker and task."""
    return simulator().expert(task, config)


def run_attempt(
    task: str,
    attempt: int,
    config: CollectConfig,
    store: AttemptStore,
    simulator: type[Simulator] | None = None,
) -> tuple[bool, int]:
    """Make one attempt and save it; return whether it succeeded, and its length.

    A worker does not know the simulators that its parent process has registered: the parent hands over the class.
    """
    expert = _expert(simulator or find_simulator(config.simulator), task, config.expert)
    demonstration = expert.demonstrate(attempt_seed(config.seed, task, attempt))
    store.save(task, attempt, demonstration)
    return demonstration.success, len(demonstration.actions)


def collect_demonstrations(config: CollectConfig) -> None:
    """Collect `config.episodes` successful episodes of each task into a LeRobotDataset v3.0."""
    simulator = load_simulator(config.simulator)
    if config.tasks == ("all",):
        config = replace(config, tasks=simulator.tasks)
    for task in config.tasks:
        simulator.check_task(task)
    store = AttemptStore(_attempts_folder(simulator, config))
    with exclusive(store.folder, f"collecting {config.out}"):
        finished = False
        try:
            # The writer comes first: it refuses what cannot be written, and holds the output against others meanwhile.
            with _open_writer(simulator, config) as writer:
                for task in config.tasks:
                    store.remove_damaged(task)
                plan = AttemptPlan(config, {task: store.outcomes(task) for task in config.tasks})
                _run_attempts(plan, store, writer)
                _assemble(writer, simulator, plan, store)
            finished = True
        finally:
            if finished or not any(store.outcomes(task) for task in config.tasks):
                shutil.rmtree(store.folder, ignore_errors=True)
    added = len(config.tasks) * config.episodes
    result = f"wrote {added} episodes to {config.out}; `oat inspect` describes them"
    Console(soft_wrap=True).print(result, highlight=False, markup=False)


def _attempts_folder(simulator: Simulator, config: CollectConfig) -> Path:
    """Return the folder beside the output in which attempts are kept.

    It is named after the settings, so that attempts made with other settings are never mixed in.
    """
    recipe = json.dumps([simulator.version, config.seed, asdict(config.expert)])
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:8]
    out = config.out.expanduser().resolve()
    return out.with_name(f".{out.name}.collecting-{digest}")


def _open_writer(simulator: Simulator, config: CollectConfig) -> LeRobotWriter:
    """Return the writer of the data set; it refuses an output that exists unless the configuration allows it."""
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
class AttemptPlan:
    """Choose which attempts to run: first those that an interruption left out, then new ones, as few as needed."""

    config: CollectConfig
    outcomes: dict[str, dict[int, bool]]
    running: set[tuple[str, int]] = field(default_factory=set)

    def kept(self, task: str) -> list[int]:
        """Return the first successful attempts at a task, as many as episodes were asked for."""
        return sorted(attempt for attempt, success in self.outcomes[task].items() if success)[: self.config.episodes]

    @property
    def num_kept(self) -> int:
        """Return the number of episodes over all tasks so far."""
        return sum(len(self.kept(task)) for task in self.config.tasks)

    def next_attempt(self) -> tuple[str, int] | None:
        """Return the task and number of the attempt to start now, or None while enough are running or done."""
        for task in self.config.tasks:
            mine = {attempt for name, attempt in self.running if name == task}
            known = self.outcomes[task].keys() | mine
            free = next(attempt for attempt in range(len(known) + 1) if attempt not in known)
            # A gap before a finished attempt is filled in any case: the episodes kept are the first successes.
            is_gap = free < max(self.outcomes[task], default=0)
            if is_gap or len(self.kept(task)) + len(mine) < self.config.episodes:
                self._check_limit(task, free)
                self.running.add((task, free))
                return task, free
        return None

    def _check_limit(self, task: str, attempts: int) -> None:
        """Raise `SimulatorError` when an expert has failed too often."""
        if attempts >= _ATTEMPTS_PER_EPISODE * self.config.episodes + _MORE_ATTEMPTS:
            raise SimulatorError(
                f"the expert for {task!r} succeeded in only {len(self.kept(task))} of {attempts} attempts"
                f"{' (less --noise may help)' if self.config.expert.noise else ''}"
            )

    def finished(self, task: str, attempt: int, success: bool) -> None:
        """Note that an attempt has ended, and how."""
        self.running.remove((task, attempt))
        self.outcomes[task][attempt] = success


def _run_attempts(plan: AttemptPlan, store: AttemptStore, writer: LeRobotWriter) -> None:
    """Keep the workers busy until every task has its episodes."""
    config = plan.config
    simulator = find_simulator(config.simulator)
    steps = 0
    begin = time.perf_counter()
    done = plan.num_kept
    futures: dict[Future[tuple[bool, int]], tuple[str, int]] = {}
    with progress_bar("collecting", len(config.tasks) * config.episodes, done) as progress, _workers(config) as pool:
        while True:
            # Two attempts per worker: none waits for this process while it writes or prints.
            while len(futures) < 2 * config.workers and (attempt := plan.next_attempt()):
                futures[pool.submit(run_attempt, *attempt, config, store, simulator)] = attempt
            if not futures:
                return
            for future in wait(futures, return_when=FIRST_COMPLETED).done:
                task, number = futures.pop(future)
                success, length = future.result()
                plan.finished(task, number, success)
                if success and steps == 0:
                    writer.check_episode(task, *store.load(task, number))  # does it fit the set it is appended to?
                steps += length
                rate = f"{task} · {steps / (time.perf_counter() - begin):.0f} steps/s"
                progress.advance(plan.num_kept - done, rate)
                done = plan.num_kept


@contextmanager
def _workers(config: CollectConfig) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of worker processes, and explain the death of one of them."""
    try:
        with worker_pool(config.workers) as pool:
            yield pool
    except BrokenProcessPool as error:
        raise SimulatorError(
            "a worker process died (out of memory?); finished attempts are kept, run the same command to continue"
        ) from error


def _assemble(writer: LeRobotWriter, simulator: Simulator, plan: AttemptPlan, store: AttemptStore) -> None:
    """Write the kept attempts, task after task, as one data set."""
    writer.record_provenance(_provenance(simulator, plan))
    episodes = [(task, attempt) for task in plan.config.tasks for attempt in plan.kept(task)]
    with progress_bar("writing", len(episodes)) as progress:
        for task, attempt in episodes:
            writer.add_episode(simulator.instruction(task), *store.load(task, attempt))
            progress.advance()


def _provenance(simulator: Simulator, plan: AttemptPlan) -> dict[str, Any]:
    """Return how the episodes came about, which is stored with the data set."""
    config = plan.config
    return {
        "simulator": simulator.version,
        "expert": simulator.demonstrator,
        "seed": config.seed,
        "noise": config.expert.noise,
        "tasks": {
            task: {"episodes": len(plan.kept(task)), "attempts": max(plan.kept(task)) + 1} for task in config.tasks
        },
    }


def _refuse_repeated_seed(out: Path, config: CollectConfig) -> None:
    """Raise an error if the data set has these tasks with this seed: the same episodes would be stored twice."""
    for earlier in read_provenance(out):
        if earlier.get("seed") == config.seed and set(config.tasks) & set(earlier.get("tasks", ())):
            raise DatasetExists(f"{out} already holds episodes of seed {config.seed}; append with another --seed")
