"""What the tests inside LeRobot share: a small set of demonstrations, and a way to run LeRobot's commands."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from oat.data.lerobot import LeRobotWriter
from oat.sims.metaworld_lerobot import IMAGE, LeRobotMetaWorld
from oat.sims.rendering import prepare_graphics

prepare_graphics()  # before LeRobot imports mujoco, which then has its graphics library for good

TASKS = ("coffee-button", "handle-press")
SIZE = 24
LENGTH = 12

Run = Callable[..., str]


def make_episode(seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Smooth 4-D actions within ±1, states and images that go with them."""
    rng = np.random.default_rng(seed)
    times = np.linspace(0, 1, LENGTH)[:, None]
    actions = np.sin(2 * np.pi * (times + rng.uniform(size=4))).astype(np.float32)
    images = rng.integers(0, 256, (LENGTH, SIZE, SIZE, 3), np.uint8)
    return actions, {"observation.state": np.cumsum(actions, 0, dtype=np.float32), IMAGE: images}


@pytest.fixture(scope="session")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a set of two tasks, named as LeRobot's MetaWorld names them."""
    root = tmp_path_factory.mktemp("data") / "demos"
    simulator = LeRobotMetaWorld()
    with LeRobotWriter(root, 80, cameras="image", robot_type="sawyer") as writer:
        for number in range(6):
            writer.add_episode(simulator.instruction(TASKS[number % 2]), *make_episode(number))
    return root


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return what runs a module of LeRobot in a process of its own, and gives what it printed."""
    home = tmp_path_factory.mktemp("home")
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(home)}

    def run_python(code: str, *arguments: str) -> str:
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=home, env={**os.environ, **offline})
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    return run_python
