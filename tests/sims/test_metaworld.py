"""MetaWorld: initial conditions are a function of the seed, experts solve every task, cameras are the right way up."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from oat.data.episodes import IMAGES, STATE
from oat.errors import UnknownName
from oat.interfaces import Expert, ExpertConfig, Simulator
from oat.sims import load_simulator
from oat.sims.metaworld import MetaWorld, MetaWorldEnv

TASKS = MetaWorld().tasks


def test_is_a_simulator_with_fifty_tasks() -> None:
    simulator = load_simulator("metaworld")
    assert isinstance(simulator, Simulator)
    assert len(simulator.tasks) == 50
    assert {"box-close", "coffee-pull", "disassemble", "stick-pull"} <= set(simulator.tasks)
    with pytest.raises(UnknownName, match="Did you mean 'metaworld'"):
        load_simulator("meta-world")


@pytest.mark.parametrize("task", ["box-close", "drawer-open", "push"])  # push redraws conditions that are too easy
def test_the_seed_alone_determines_the_initial_condition(task: str) -> None:
    env, other = MetaWorldEnv(task), MetaWorldEnv(task)
    np.random.seed(1)  # noqa: NPY002 - MetaWorld's own resets draw from this global state
    first = env.reset(7)[STATE]
    env.reset(8)
    for _ in range(5):
        env.step(np.ones(4, np.float32))
    np.random.seed(2)  # noqa: NPY002
    np.testing.assert_array_equal(env.reset(7)[STATE], first)
    np.testing.assert_array_equal(other.reset(7)[STATE], first)
    starts = np.stack([env.reset(seed)[STATE] for seed in range(10)])
    assert len(np.unique(starts, axis=0)) == 10


@pytest.mark.parametrize("task", ["drawer-open", "window-close", "lever-pull"])
def test_the_first_observation_is_not_stale(task: str) -> None:
    """Objects do not jump between the first observation and the one after a step of doing nothing."""
    env = MetaWorldEnv(task)
    for seed in range(5):
        first = env.reset(seed)[STATE]
        second = env.step(np.zeros(4, np.float32)).observation
        assert np.abs(second[STATE][4:11] - first[4:11]).max() < 0.01
        np.testing.assert_array_equal(first[:18], first[18:36])  # no earlier frame yet
        np.testing.assert_allclose(second[STATE][18:36], first[:18], atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_solves_the_task(task: str) -> None:
    expert = MetaWorld().expert(task, ExpertConfig())
    assert isinstance(expert, Expert)
    demonstration = next(d for seed in range(5) if (d := expert.demonstrate(seed)).success)
    steps = len(demonstration.actions)
    assert demonstration.actions.shape == (steps, 4)
    assert demonstration.actions.dtype == np.float32
    assert np.abs(demonstration.actions).max() <= 1
    assert demonstration.observations[STATE].shape == (steps, 39)


def test_demonstrations_repeat_exactly_and_replay() -> None:
    """The recorded actions, replayed from the same seed, visit the recorded states and succeed at the last step."""
    expert = MetaWorld().expert("button-press", ExpertConfig(noise=0.3))
    first, again = expert.demonstrate(3), expert.demonstrate(3)
    np.testing.assert_array_equal(first.actions, again.actions)
    env = MetaWorldEnv("button-press")
    state, success = env.reset(3)[STATE], False
    for step, action in enumerate(first.actions):
        np.testing.assert_array_equal(state, first.observations[STATE][step])
        assert not success
        outcome = env.step(action)
        observation, success = outcome.observation, outcome.success
        state = observation[STATE]
    assert success == first.success


def test_noise_diversifies() -> None:
    clean = MetaWorld().expert("button-press", ExpertConfig()).demonstrate(0)
    noisy = MetaWorld().expert("button-press", ExpertConfig(noise=0.3)).demonstrate(0)
    steps = min(len(clean.actions), len(noisy.actions))
    assert np.abs(clean.actions[:steps] - noisy.actions[:steps]).mean() > 0.1
    assert np.abs(noisy.actions).max() <= 1


def test_cameras_do_not_change_the_demonstration() -> None:
    seen = MetaWorld().expert("drawer-open", ExpertConfig(cameras=("corner2",), image_size=32)).demonstrate(0)
    blind = MetaWorld().expert("drawer-open", ExpertConfig()).demonstrate(0)
    np.testing.assert_array_equal(seen.actions, blind.actions)
    np.testing.assert_array_equal(seen.observations[STATE], blind.observations[STATE])


@pytest.mark.parametrize("camera", ["corner", "corner2", "corner3", "corner4"])
def test_images_are_the_right_way_up_and_move(camera: str) -> None:
    """The background above the table is plain grey; upside down it would be at the bottom of the picture."""
    env = MetaWorldEnv("drawer-open", (camera,), image_size=96)
    first = env.reset(0)[IMAGES + camera]
    assert first.shape == (96, 96, 3)
    assert first.dtype == np.uint8
    top, bottom = first[:12].astype(float), first[-12:].astype(float)
    assert top.std() < bottom.std()
    for _ in range(20):
        observation = env.step(np.array([1, 1, -1, 0], np.float32)).observation
    assert np.abs(observation[IMAGES + camera].astype(float) - first).mean() > 0.5


def test_unknown_names_suggest_close_ones() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'box-close'"):
        MetaWorld().expert("boxclose", ExpertConfig())
    with pytest.raises(UnknownName, match=r"Did you mean .*'corner2'"):
        MetaWorldEnv("drawer-open", ("corner22",))


@pytest.mark.parametrize("task", ["stick-pull", "push"])
def test_steps_are_those_of_metaworld_itself(task: str) -> None:
    """Rewards count contacts between gripper and object, which are found otherwise here."""
    ours = MetaWorldEnv(task)  # imports MetaWorld, after it chose how to draw
    env_dict: Any = import_module("metaworld.env_dict")
    own = env_dict.ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE[f"{task}-v3-goal-observable"](seed=0)
    own._freeze_rand_vec = False
    own.seeded_rand_vec = True
    own.seed(3)
    own.reset()
    ours.reset(3)
    own._prev_obs = ours._env._prev_obs  # our reset repairs the first frame
    demonstrated = MetaWorld().expert(task, ExpertConfig()).demonstrate(3)
    touched = set()
    for action in demonstrated.actions:
        state, reward, _, _, info = own.step(action)
        found_state, found_reward, _, _, found = ours._env.step(action)
        assert np.array_equal(found_state, state)
        assert (found_reward, found) == (reward, info)
        touched.add(own.touching_main_object)
    assert touched == {False, True}


def test_environments_of_one_task_move_their_own_bodies() -> None:
    """They are copies of one compiled model, in which a reset puts bodies into other places."""
    first, second = MetaWorldEnv("box-close"), MetaWorldEnv("box-close")
    before = first.reset(1)[STATE].copy()
    second.reset(2)
    actions = np.zeros((5, 4), np.float32)
    alone = MetaWorldEnv("box-close")
    assert np.array_equal(alone.reset(1)[STATE], before)
    for action in actions:
        second.step(action)
        assert np.array_equal(first.step(action).observation[STATE], alone.step(action).observation[STATE])
