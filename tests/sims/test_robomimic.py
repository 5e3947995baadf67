"""RoboMimic: scripted experts solve the tasks in many ways, and files of robomimic fit the simulator."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oat.cli import main
from oat.data.episodes import STATE, open_dataset
from oat.data.provenance import read_provenance
from oat.errors import UnknownName
from oat.evaluation.protocol import find_protocol
from oat.evaluation.records import EpisodeKey, EpisodeRecord
from oat.evaluation.rollout import Episode, Rollout
from oat.evaluation.workers.pool import EnvironmentPool
from oat.evaluation.workers.processes import LocalProcesses
from oat.interfaces import Demonstration, Expert, ExpertConfig, Simulator
from oat.nn.width import Width
from oat.policies import Denoising, DiffusionPolicy
from oat.policies.config import DiffusionConfig
from oat.policies.context import describe_context
from oat.sims import load_simulator
from oat.sims.collect import attempt_seed, collect_demonstrations
from oat.sims.config import CollectConfig
from oat.sims.hand import Manner
from oat.sims.robomimic import RoboMimic
from oat.tokenizers.space import ActionSpace
from tests.sims.robomimic_files import ROBOT, env_args, environment, play, random_actions, write_file

TASKS = RoboMimic.tasks


def test_is_a_simulator_with_three_tasks() -> None:
    simulator = load_simulator("robomimic")
    assert isinstance(simulator, Simulator)
    assert simulator.tasks == ("lift", "can", "square")
    assert simulator.version == "robosuite 1.5.2, mujoco 3.3.0"
    with pytest.raises(UnknownName, match="Did you mean 'square'"):
        simulator.make("squares")


def test_conditions_never_overlap() -> None:
    simulator = load_simulator("robomimic")
    selection, reporting = (simulator.conditions("lift", split) for split in ("selection", "reporting"))
    assert selection[0] < selection[-1] < reporting[0] < reporting[-1]
    assert all(attempt_seed(seed, "lift", number) < selection[0] for seed in range(5) for number in range(5))


@pytest.mark.parametrize(("task", "seeds"), [("lift", 3), ("can", 2), ("square", 2)])
def test_the_expert_solves_the_task(task: str, seeds: int) -> None:
    expert = RoboMimic().expert(task, ExpertConfig())
    assert isinstance(expert, Expert)
    demonstrations = [expert.demonstrate(seed) for seed in range(seeds)]
    assert all(demonstration.success for demonstration in demonstrations)
    for demonstration in demonstrations:
        steps = len(demonstration.actions)
        assert demonstration.actions.shape == (steps, 7)
        assert np.abs(demonstration.actions).max() <= 1
        assert demonstration.observations[STATE].shape == (steps, 23)
        assert demonstration.observations[STATE][:, 19:].any() == (task != "lift")
    assert len({len(demonstration.actions) for demonstration in demonstrations}) == seeds  # not one groove


def test_demonstrations_repeat_exactly_and_replay() -> None:
    """The recorded actions, taken from the same seed, visit the recorded states and succeed at the last step."""
    expert = RoboMimic().expert("lift", ExpertConfig(noise=0.1))
    first, again = expert.demonstrate(3), expert.demonstrate(3)
    np.testing.assert_array_equal(first.actions, again.actions)
    assert first.success
    env = environment("lift")
    seen = [env.reset(3)[STATE]]
    outcomes = [env.step(action) for action in first.actions]
    seen += [outcome.observation[STATE] for outcome in outcomes]
    np.testing.assert_array_equal(np.stack(seen[:-1]), first.observations[STATE])
    assert [outcome.success for outcome in outcomes] == [False] * (len(outcomes) - 1) + [True]


def test_manners_differ() -> None:
    manners = [Manner.draw(seed) for seed in range(50)]
    assert np.ptp([manner.gain for manner in manners]) > 0.2
    assert np.ptp([manner.pauses.sum() for manner in manners]) > 5
    assert {bool(manner.fumbles[0]) for manner in manners} == {True, False}
    assert np.std([manner.grasp for manner in manners], axis=0).min() > 0.3


def test_one_command_collects_all_tasks(tmp_path: Path) -> None:
    """Lift's shorter states and Can's are one data set, labelled as scripted."""
    out = tmp_path / "set"
    collect_demonstrations(CollectConfig("robomimic", ("lift", "can"), out, 1, workers=1))
    episodes = open_dataset(out)
    assert episodes.tasks == ("lift", "can")
    assert (episodes.fps, episodes.robot_type, episodes.action_dim) == (20, "panda", 7)
    assert set(episodes.observations) == {STATE, *ROBOT}
    (entry,) = read_provenance(out)
    assert entry["expert"] == "scripted"
    expert = RoboMimic().expert("lift", ExpertConfig())
    expected: Demonstration = expert.demonstrate(attempt_seed(0, "lift", 0))
    np.testing.assert_array_equal(episodes.actions[episodes.frames(0)], expected.actions)


@pytest.mark.parametrize("task", TASKS)
def test_a_files_observations_are_the_simulators(task: str, tmp_path: Path) -> None:
    live = play(environment(task), 1, random_actions(3))
    episodes = open_dataset(write_file(tmp_path / "low_dim.hdf5", [live], env_args(task)))
    assert episodes.tasks == (task,)
    assert set(episodes.vectors) - set(live.observations[0]) == {"observation.object"}
    for key in (STATE, *ROBOT):
        expected = np.stack([frame[key] for frame in live.observations[:-1]])
        np.testing.assert_array_equal(episodes.observation(key)[episodes.all_frames()], expected)


def test_a_later_robosuites_objects_are_not_taken_for_ours(tmp_path: Path) -> None:
    """From 1.5 on their numbers have another order and sign: such files are observed anew."""
    live = play(environment("lift"), 1, random_actions(3))
    source = write_file(tmp_path / "low_dim.hdf5", [live], {**env_args("lift"), "env_version": "1.5.1"})
    with pytest.raises(UnknownName, match="of a later robosuite, from which `oat convert --render` makes observation"):
        open_dataset(source).observation(STATE)
    main(["convert", str(source), str(tmp_path / "set"), "--render"])
    converted = open_dataset(tmp_path / "set")
    assert set(converted.observations) == {STATE, *ROBOT}
    expected = np.stack([frame[STATE] for frame in live.observations[:-1]])
    np.testing.assert_array_equal(converted.observation(STATE)[converted.all_frames()], expected)


def test_a_policy_of_a_files_observations_acts_in_the_simulator(tmp_path: Path) -> None:
    """In a worker, for two chunks; that it has learned nothing does not matter here."""
    file = write_file(tmp_path / "low_dim.hdf5", [play(environment("can"), 1, random_actions(6))], env_args("can"))
    context = describe_context(open_dataset(file), (STATE, "observation.robot0_gripper_qpos"))
    policy = DiffusionPolicy(context, ActionSpace(8, 7), DiffusionConfig(Width(32, 16), 1))
    protocol = replace(find_protocol("robomimic"), max_steps=12, execute=8)
    condition = RoboMimic().conditions("can", "reporting")[0]
    key = EpisodeKey(protocol.hash, "dp", 0, "weights", "2 steps", "can", "reporting", condition, 0)
    records: list[EpisodeRecord] = []
    with closing(EnvironmentPool(LocalProcesses(protocol), processes=1, slots_per_process=1)) as pool:
        rollout = Rollout(policy, pool, 1, lambda record, video: records.append(record), protocol)
        rollout.run([Episode(key, Denoising(2), "can")])
    (record,) = records
    assert (record.steps, record.chunks, record.crashed, record.success) == (12, 2, False, False)
