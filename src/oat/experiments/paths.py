"""Paths of the hand: recorded episodes are run again, which gives the same, and where the hand went is kept.

Records hold how an episode ended, and not how it went. A file in the study's folder holds the paths of an evaluation,
by the names of their episodes; the name has the checkpoint in it, so that paths of a replaced policy are never read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from oat.data.episodes import STATE, open_dataset
from oat.errors import SimulatorError
from oat.evaluation.config import EvalConfig
from oat.evaluation.plan import plan_evaluation
from oat.evaluation.records import EpisodeRecord
from oat.evaluation.rollout import Episode, Rollout
from oat.evaluation.workers.direct import DirectLink, DirectTransport
from oat.evaluation.workers.pool import EnvironmentPool
from oat.evaluation.workers.worker import make_environment
from oat.experiments.study.budget import StepBudget
from oat.experiments.study.study import DEMONSTRATIONS, EvaluationRun, Study
from oat.interfaces import Environment, Outcome
from oat.io.atomic import staged_file
from oat.policies import Policy, load_policy
from oat.protocol import Protocol
from oat.sims import find_simulator, load_simulator

PATHS_FOLDER = "paths"
HandPath = Float32[np.ndarray, "_ axes"]  # paths that are held together differ in length
"""The hand's position before the first action and after each."""


@dataclass
class WatchedEnvironment:
    """Note where the hand of an environment is, by the initial condition of the episode."""

    environment: Environment
    hand: slice
    paths: dict[int, list[np.ndarray]]
    _condition: int = 0

    def reset(self, condition: int) -> Mapping[str, np.ndarray]:
        """Begin an episode, and its path."""
        self._condition = condition
        observation = self.environment.reset(condition)
        self.paths[condition] = [observation[STATE][self.hand]]
        return observation

    def step(self, action: np.ndarray, observe: bool = True) -> Outcome:
        """Take an action, and observe where it led even if nobody else asks."""
        outcome = self.environment.step(action)
        self.paths[self._condition].append(outcome.observation[STATE][self.hand])
        return outcome

    def hold(self) -> np.ndarray:
        """Return the action that keeps the robot where it is."""
        return self.environment.hold()


def measure_paths(study: Study, evaluations: Sequence[EvaluationRun]) -> None:
    """Run evaluations again whose paths are not kept yet, and keep those of the demonstrations, too."""
    for evaluation in evaluations:
        recorded = [each for group in study.records(evaluation).values() for each in group]
        if any(each.key.file_name not in _read(_file(study, evaluation)) for each in recorded):
            _write(_file(study, evaluation), _run_again(study, evaluation, recorded))
    _write(study.folder / PATHS_FOLDER / f"{DEMONSTRATIONS}.npz", _demonstrated(study))


def read_paths(study: Study, evaluation: EvaluationRun) -> dict[str, HandPath]:
    """Return the paths of an evaluation by `file_name` of their episodes' keys; none where it was not measured."""
    return _read(_file(study, evaluation))


def read_demonstrated_paths(study: Study) -> list[HandPath]:
    """Return the paths of the demonstrations; none where they were not measured."""
    return list(_read(study.folder / PATHS_FOLDER / f"{DEMONSTRATIONS}.npz").values())


def _file(study: Study, evaluation: EvaluationRun) -> Path:
    return study.folder / PATHS_FOLDER / f"{Path(evaluation.name).name}.npz"


def _read(file: Path) -> dict[str, HandPath]:
    if not file.exists():
        return {}
    with np.load(file) as arrays:
        return dict(arrays)


def _write(file: Path, paths: Mapping[str, HandPath]) -> None:
    with staged_file(file) as staging, staging.open("wb") as opened:
        np.savez_compressed(opened, allow_pickle=False, **paths)


def _demonstrated(study: Study) -> dict[str, HandPath]:
    episodes = open_dataset(study.data)
    states = episodes.observation(STATE)
    hand = _hand(study)
    return {f"{number:06d}": states[episodes.frames(number)][:, hand] for number in range(len(episodes))}


def _hand(study: Study) -> slice:
    hand = find_simulator(study.sim).hand_position
    if hand is None:
        raise SimulatorError(f"{study.sim} does not tell where its hand is, so that there are no paths")
    return hand


def _run_again(study: Study, evaluation: EvaluationRun, recorded: Sequence[EpisodeRecord]) -> dict[str, HandPath]:
    """Run the episodes of an evaluation as it ran them, and return their paths."""
    config = study.runs([evaluation], StepBudget(study))[-1].config
    assert isinstance(config, EvalConfig)
    policy = load_policy(config.policy)
    plan = plan_evaluation(config, policy, load_simulator(config.sim))
    outcomes = {record.key: record for record in recorded}
    found: dict[str, HandPath] = {}
    # One way at a time: within it, an initial condition identifies the episode.
    for _, alike in groupby(plan.episodes, lambda episode: (episode.key.task, episode.key.decoding)):
        episodes = [episode for episode in alike if episode.key in outcomes]
        repeated, paths = _roll_out(policy, plan.protocol, _hand(study), episodes, config.batch)
        for record in repeated:
            _check_repeats(outcomes[record.key], record)
            found[record.key.file_name] = np.stack(paths[record.key.condition])
    return found


def _roll_out(
    policy: Policy, protocol: Protocol, hand: slice, episodes: Sequence[Episode], batch: int
) -> tuple[list[EpisodeRecord], dict[int, list[np.ndarray]]]:
    """Run episodes in this process, and return their records and, by condition, where the hand was."""
    paths: dict[int, list[np.ndarray]] = {}
    records: list[EpisodeRecord] = []

    def make(protocol: Protocol, task: str) -> Environment:
        return WatchedEnvironment(make_environment(protocol, task), hand, paths)

    def finish(record: EpisodeRecord, video: bytes | None) -> None:
        records.append(record)

    pool: EnvironmentPool[DirectLink] = EnvironmentPool(DirectTransport(protocol, make), 1, 2 * batch)
    Rollout(policy, pool, batch, finish, protocol).run(replace(episode, film=False) for episode in episodes)
    return records, paths


def _check_repeats(recorded: EpisodeRecord, repeated: EpisodeRecord) -> None:
    """Raise SimulatorError where an episode went otherwise than recorded: its path would be another's."""
    if (recorded.success, recorded.steps) != (repeated.success, repeated.steps):
        raise SimulatorError(
            f"{recorded.key.file_name} did not repeat as recorded, so there is no path of it; it was recorded with "
            f"{recorded.versions}, now with {repeated.versions}"
        )
