"""`--view lerobot` shows what LeRobot's own MetaWorld environment shows."""

import numpy as np
import pytest
from lerobot.envs.metaworld import TASK_DESCRIPTIONS, MetaworldEnv

from oat.data.episodes import STATE
from oat.errors import InvalidOption, UnknownName
from oat.sims.metaworld_lerobot import FULL_SIZE, IMAGE, LeRobotMetaWorld, shrink

TASK = "coffee-button"


ACTION = np.array([0.5, 0.2, -0.3, 0.1], np.float32)


@pytest.mark.parametrize(("size", "tolerance"), [(FULL_SIZE, 0.0), (96, 0.5)])
def test_state_and_picture_are_lerobot_s(size: int, tolerance: float) -> None:
    theirs = MetaworldEnv(f"{TASK}-v3", obs_type="pixels_agent_pos")
    theirs._env.seeded_rand_vec = True
    theirs._env.seed(7)
    theirs.reset()
    seen = theirs.step(ACTION)[0]
    theirs.close()  # gymnasium's renderer draws in whichever context is the current one, be it ours

    ours = LeRobotMetaWorld().make(TASK, ("image",), size)
    ours.reset(7)
    frame = ours.step(ACTION).observation
    np.testing.assert_allclose(frame[STATE], seen["agent_pos"], atol=1e-6)
    wanted = shrink(seen["pixels"], size).astype(float)
    assert np.abs(frame[IMAGE] - wanted).mean() <= tolerance


def test_tasks_are_lerobot_s_sentences() -> None:
    simulator = LeRobotMetaWorld()
    assert {simulator.instruction(task) for task in simulator.tasks} == set(TASK_DESCRIPTIONS.values())


def test_other_cameras_and_sizes_are_refused() -> None:
    with pytest.raises(UnknownName, match="corner2"):
        LeRobotMetaWorld().make(TASK, ("corner2",))
    with pytest.raises(InvalidOption, match="must divide 480"):
        LeRobotMetaWorld().make(TASK, ("image",), 100)
