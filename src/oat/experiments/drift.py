"""table-drift: how far policies stray from what was demonstrated while they act (our own).

A policy learns what to do in demonstrated states. Acting, each small error brings it to a state that is a little
farther from any of them, where it knows less. The errors of table-errors, which are measured in demonstrated states, do
not contain this.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float

from oat.data.episodes import STATE, Episodes, open_dataset
from oat.data.splits import split_episodes
from oat.errors import OatError, SimulatorError
from oat.evaluation.config import EvalConfig
from oat.evaluation.plan import Plan, plan_evaluation
from oat.evaluation.rollout import Episode
from oat.evaluation.workers.worker import Act, Crash, EnvironmentWorker, Message, Reset, Segment, make_environment
from oat.experiments.study.held_out import find_policy
from oat.experiments.study.methods import BC, COMPARED, RVQ, UNORDERED
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import circumstances, not_run
from oat.interfaces import Observation
from oat.policies import Policy
from oat.policies.sampling import Noise
from oat.sims import find_simulator, load_simulator
from oat.tables.interval import NOT_AVAILABLE
from oat.tables.table import Table

NAME = "table-drift"
_METHODS = (BC, *COMPARED, UNORDERED, RVQ)
_EPISODES = 10
"""Per task: selection conditions, so that nobody looks at those of the reported tables."""
_SHOWN = (1, 2, 4, 8, 16)
"""Numbers of executed chunks after which distances are shown."""


@dataclass(frozen=True)
class Course:
    """Hold how far an episode was from the nearest demonstrated state: at its start, and after each chunk."""

    distances: Float[np.ndarray, " chunks"]
    success: bool


class DemonstratedStates:
    """Measure distances to the states of a task's demonstrations, in standard deviations of each of their numbers."""

    def __init__(self, states: Float[np.ndarray, "states dim"]) -> None:
        self._center = states.mean(0)
        deviations = states.std(0)
        # Numbers that never change, such as a fixed goal's, say nothing about how far a state is.
        self._changing = deviations > 1e-6 * max(1.0, float(np.abs(states).max()))
        self._scale = deviations[self._changing]
        self._known = self._scaled(states)

    def _scaled(self, states: Float[np.ndarray, "states dim"]) -> torch.Tensor:
        return torch.from_numpy((states - self._center)[:, self._changing] / self._scale).double()

    def distances(self, states: Float[np.ndarray, "states dim"]) -> Float[np.ndarray, " states"]:
        """Return the root mean square distance of each state to the nearest demonstrated one."""
        # Squares of differences: differences of squares, which are quicker, lose small distances among large numbers.
        mode = "donot_use_mm_for_euclid_dist"
        nearest = torch.cdist(self._scaled(states), self._known, compute_mode=mode).amin(1)
        return (nearest / max(1, self._known.shape[1]) ** 0.5).numpy()


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: the first training seed of every method of table-sim and of RVQ, up to its policy."""
    return [EvaluationRun(method, until="policy") for method in _METHODS]


def tables(study: Study) -> list[Table]:
    """Let every method whose policy is there act, and return the table of how far it strays."""
    rows = list[tuple[str, ...]]()
    absent = list[str]()
    for method in _METHODS:
        trained = ((seed, find_policy(study, method, seed)) for seed in range(study.seeds or study.scale.seeds))
        seed, policy = next(((seed, found) for seed, found in trained if found is not None), (0, None))
        if policy is None:
            absent.append(method.name)
            continue
        demonstrated, held_out = _demonstrations(study, policy)
        if not rows:
            rows.append(_row("held-out demonstrations", NOT_AVAILABLE, list(_retraced(study, demonstrated, held_out))))
        config = EvalConfig(
            study.folder / method.run("policies", seed),
            study.sim,
            study.folder,
            tasks=study.tasks,
            episodes=min(_EPISODES, study.episodes),
            split="selection",
        )
        plan = plan_evaluation(config, policy, load_simulator(study.sim))
        rows.append(_row(method.name, str(seed), list(_acted(policy, plan, demonstrated))))
    columns = ("", "seed", "start", *(f"after {each}" for each in _SHOWN), "successes", "failures", "solved")
    reading = (
        "distance to the nearest state of the task's training demonstrations, root mean square over the state's "
        "numbers in their standard deviations, after so many executed chunks: medians over the episodes that last so "
        "long; successes and failures: the median over their episodes of the mean over an episode's chunks"
    )
    title = f"{NAME}: how far acting leads from what was demonstrated"
    return [Table(title, columns, tuple(rows), (reading, *not_run(absent), *circumstances(study)))]


def _demonstrations(study: Study, policy: Policy) -> tuple[dict[str, DemonstratedStates], Episodes]:
    """Return the states that a policy was trained on, by instruction, and the demonstrations that it was not."""
    episodes = open_dataset(study.data)
    trained, held_out = split_episodes(episodes, *policy.training_record.split())
    states: dict[str, list[np.ndarray]] = {}
    for number in trained:
        states.setdefault(episodes.task(number), []).append(episodes.observation(STATE)[episodes.frames(number)])
    return {task: DemonstratedStates(np.concatenate(each)) for task, each in states.items()}, episodes.select(held_out)


def _retraced(study: Study, demonstrated: dict[str, DemonstratedStates], held_out: Episodes) -> Iterator[Course]:
    """Yield the courses of demonstrations that no policy was trained on, looked at as often as policies are."""
    execute = find_simulator(study.sim).protocol.execute
    for number in range(len(held_out.lengths)):
        states = held_out.observation(STATE)[held_out.frames(number)[::execute]]
        yield Course(demonstrated[held_out.task(number)].distances(states), success=True)


def _acted(policy: Policy, plan: Plan, demonstrated: dict[str, DemonstratedStates]) -> Iterator[Course]:
    """Yield the courses of a policy's episodes."""
    simulator = find_simulator(plan.protocol.simulator)
    worker = EnvironmentWorker(plan.protocol, partial(make_environment, simulator=simulator))
    for episode in plan.episodes:
        segments = list(_segments(policy, worker, episode))
        states = np.stack([segment.history[STATE][-1] for segment in segments])
        yield Course(demonstrated[episode.instruction].distances(states), segments[-1].success)


@torch.inference_mode()
def _segments(policy: Policy, worker: EnvironmentWorker, episode: Episode) -> Iterator[Segment]:
    """Yield where an episode is at its start, and after each chunk."""
    segment = _ask(worker, Reset(episode.key.task, episode.key.condition))
    yield segment
    chunks = 0
    while not segment.ended:
        observed = {key: values[None] for key, values in segment.history.items()}
        observation = Observation(observed, (episode.instruction,))
        chunk = policy.predict_chunk(observation, episode.decoding, Noise.of([episode.seed], [chunks]))
        segment = _ask(worker, Act(chunk.actions[0].numpy() if bool(chunk.valid[0]) else None))
        chunks += 1
        yield segment


def _ask(worker: EnvironmentWorker, message: Message) -> Segment:
    answer = worker.answer(message)
    if isinstance(answer, OatError):
        raise answer
    if isinstance(answer, Crash):
        raise SimulatorError(answer.reason)
    return answer


def _row(name: str, seed: str, courses: Sequence[Course]) -> tuple[str, ...]:
    # Medians: an object that falls off the table is a hundred deviations away.
    at = [[course.distances[chunk] for course in courses if len(course.distances) > chunk] for chunk in (0, *_SHOWN)]
    means = [[float(each.distances.mean()) for each in courses if each.success is success] for success in (True, False)]
    return (
        name,
        seed,
        *(f"{np.median(each):.2f}" if each else NOT_AVAILABLE for each in (*at, *means)),
        f"{sum(course.success for course in courses)} of {len(courses)}",
    )
