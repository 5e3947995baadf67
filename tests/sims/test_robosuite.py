"""What the robosuite benchmarks share: episodes repeat to the last bit, observations are functions of the state."""

import subprocess
import sys

import numpy as np
import pytest

from oat.data.episodes import IMAGES, STATE
from oat.errors import InvalidActions, MissingExtra, SimulatorError, UnknownName
from oat.interfaces import Environment, Filmable
from oat.sims.robomimic import RoboMimic
from oat.sims.robosuite import import_robosuite
from tests.sims.robomimic_files import CAMERA, SIZE, environment, final_states, play, random_actions

TASKS = RoboMimic.tasks
QUIET = """
import logging
from oat.sims.robosuite import import_robosuite
import_robosuite()
assert not logging.getLogger("robosuite_logs").handlers
"""


def test_importing_robosuite_says_and_writes_nothing() -> None:
    command = [sys.executable, "-W", "error", "-c", QUIET]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_another_generation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_robosuite(), "__version__", "1.4.0")
    with pytest.raises(SimulatorError, match=r"robosuite 1\.5, and 1\.4\.0 is installed: pip install --no-deps praxis"):
        import_robosuite()


def test_a_missing_robosuite_names_the_extra_and_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "robosuite", None)
    with pytest.raises(MissingExtra, match=r"\[robosuite\]' && pip install --no-deps praxis"):
        import_robosuite()


@pytest.mark.parametrize("task", TASKS)
def test_equal_conditions_give_equal_episodes(task: str) -> None:
    """Whatever went before: another episode that closed the gripper, and numbers drawn from numpy's global state."""
    env, actions = environment(task), random_actions(12)
    assert isinstance(env, Environment)
    first = play(env, 5, actions)
    other = play(env, 6, np.ones((12, 7), np.float32))
    np.random.random(7)  # noqa: NPY002
    again = play(env, 5, actions)
    np.testing.assert_array_equal(first.states, again.states)
    for one, two in zip(first.observations, again.observations):
        np.testing.assert_array_equal(one[STATE], two[STATE])
    assert np.abs(first.states[0] - other.states[0]).max() > 1e-3


@pytest.mark.parametrize("task", TASKS)
def test_an_episode_goes_on_from_a_stored_state_as_it_went(task: str) -> None:
    env, actions = environment(task), random_actions(8)
    live = play(env, 7, actions)
    begun = env.reset_to(live.states[0])
    np.testing.assert_array_equal(begun[STATE], live.observations[0][STATE])
    for action, state in zip(actions, live.states[1:]):
        env.step(action)
        np.testing.assert_array_equal(env.simulator_state, state)


def test_another_process_would_build_the_same_environment() -> None:
    """The size of Lift's cube is drawn when it is built."""
    np.random.seed(4)  # noqa: NPY002
    first, second = environment("lift"), RoboMimic().make("lift")
    actions = random_actions(5)
    np.testing.assert_array_equal(play(first, 3, actions).states, play(second, 3, actions).states)
    assert first.env.model.get_xml() == second.env.model.get_xml()


def test_steps_are_robosuites_own_bit_for_bit() -> None:
    """What is skipped moves nothing: 200 steps end in the same bits as robosuite's own."""
    ours, own = final_states(environment("square"), 11, random_actions(200))
    np.testing.assert_array_equal(ours, own)


def test_the_callers_random_numbers_are_left_alone() -> None:
    env = environment("lift")
    np.random.seed(1)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    env.reset(9)
    np.testing.assert_array_equal(np.random.random(3), expected)  # noqa: NPY002


def test_stored_states_show_what_was_seen_live() -> None:
    env = environment("can", CAMERA, "robot0_eye_in_hand")
    live = play(env, 2, random_actions(4))
    for state, seen in zip(live.states, live.observations):
        shown = env.show(state)
        assert shown.keys() == seen.keys()
        for key, value in seen.items():
            np.testing.assert_array_equal(shown[key], value)


def test_images_are_the_right_way_up_and_only_there_when_asked_for() -> None:
    """Above Can's bins is the plain wall; the wooden bin is brown, collision geometries would be green and red."""
    assert not any(key.startswith(IMAGES) for key in environment("lift").reset(0))
    image = environment("can", CAMERA, "robot0_eye_in_hand").reset(0)[IMAGES + CAMERA]
    assert image.shape == (SIZE, SIZE, 3)
    assert image.dtype == np.uint8
    top, middle = image[:3].astype(float), image[12:20, 2:14].astype(float)
    assert top.std() < middle.std()
    red, _, blue = middle.reshape(-1, 3).mean(0)
    assert red > blue + 20


def test_holding_still_keeps_the_hand_and_the_grip() -> None:
    env = environment("lift")
    env.reset(0)
    np.testing.assert_array_equal(env.hold(), np.zeros(7, np.float32))
    for _ in range(3):
        env.step(np.array([0, 0, 0, 0, 0, 0, 1], np.float32))
    np.testing.assert_array_equal(env.hold(), [0, 0, 0, 0, 0, 0, 1])
    before = env.observe()["observation.robot0_eef_pos"]
    for _ in range(5):
        after = env.step(env.hold()).observation
    assert np.abs(after["observation.robot0_eef_pos"] - before).max() < 0.005
    assert after["observation.robot0_gripper_qpos"][0] < 0.01


def test_bad_input_is_told() -> None:
    env = environment("lift")
    state = env.simulator_state
    with pytest.raises(InvalidActions, match="actions are 7 finite numbers"):
        env.step(np.zeros(4, np.float32))
    with pytest.raises(InvalidActions, match="nan"):
        env.step(np.full(7, np.nan, np.float32))
    with pytest.raises(SimulatorError, match=f"state has {len(state)} numbers in this scene"):
        env.show(state[:-1])
    with pytest.raises(UnknownName, match="Did you mean 'agentview'"):
        RoboMimic().make("lift", ("agent_view",))


def test_an_onlooker_sees_where_the_hand_will_go() -> None:
    """The path that is drawn into videos starts at the hand and goes where it goes."""
    env, actions = environment("lift"), np.zeros((25, 7), np.float32)
    assert isinstance(env, Filmable)
    env.reset(0)
    actions[:, 1] = 0.5
    path = env.foresee(actions)
    first = env.render(64)
    for action in actions:
        env.step(action)
    went, foreseen = env.foresee(actions)[0] - path[0], path[-1] - path[0]
    assert path.shape == (26, 2)
    assert np.linalg.norm(went) > 0.05
    assert np.linalg.norm(went - foreseen) < 0.35 * np.linalg.norm(went)  # it takes a moment to start, and lags
    assert np.abs(env.render(64).astype(int) - first).mean() > 1
