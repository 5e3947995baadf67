"""RoboMimic's Lift, Can and Square in robosuite (https://arxiv.org/abs/2108.03298), with scripted experts.

Actions are 7 numbers in [-1, 1], 20 times a second: the hand's motion (of 5 cm), its turn about x, y, z (of 0.5 rad)
and the gripper (-1 opens, 1 closes). The state has 23 numbers: the hand's position (3) and quaternion (4), the fingers'
positions (2) and robomimic's `object` (14, the last four of which are zero for Lift).
"""

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oat.data.hdf5 import ROBOMIMIC_STATE, ROBOMIMIC_STATE_DIM, ROBOMIMIC_TASKS, read_attributes
from oat.errors import MissingKey, unknown_name
from oat.interfaces import Demonstration, ExpertConfig, Split
from oat.sims.env_args import translate_env_args
from oat.sims.robomimic_experts import EXPERTS, Manner
from oat.sims.robosuite import BUILD_OPTIONS, RobosuiteEnv, import_robosuite

ENVIRONMENTS = {task: name for name, task in ROBOMIMIC_TASKS.items()}
ACTION_DIM, MAX_STEPS = 7, 400


def make_environment(
    name: str, options: Mapping[str, Any], cameras: tuple[str, ...] = (), image_size: int = 128
) -> RobosuiteEnv:
    """An environment of robosuite that observes as robomimic does."""
    robosuite = import_robosuite()
    keys = [{"object": "object-state"}.get(key, key) for key in ROBOMIMIC_STATE]
    return RobosuiteEnv(
        lambda: robosuite.make(name, **options, **BUILD_OPTIONS),
        keys,
        cameras,
        image_size,
        state_dim=ROBOMIMIC_STATE_DIM,
    )


def environment_of(file: Path, cameras: tuple[str, ...] = (), image_size: int = 128) -> RobosuiteEnv:
    """The environment in which a robomimic file's demonstrations were given."""
    env_args = read_attributes(file).get("env_args")
    if not isinstance(env_args, dict):
        raise MissingKey(f"{file}: data has no attribute 'env_args' that describes the environment")
    return make_environment(*translate_env_args(env_args, str(file)), cameras, image_size)


class ScriptedExpert:
    """The expert of a task, run until the first success or the time limit."""

    def __init__(self, task: str, config: ExpertConfig) -> None:
        self._env = RoboMimic().make(task, config.cameras, config.image_size)
        self._script, self._noise = EXPERTS[task], config.noise

    def demonstrate(self, seed: int) -> Demonstration:
        noise = self._noise * np.random.default_rng([seed, 1]).normal(size=(MAX_STEPS, ACTION_DIM))
        observations: list[Mapping[str, np.ndarray]] = [self._env.reset(seed)]
        actions: list[np.ndarray] = []
        success = False
        for wanted, disturbance in zip(self._script(self._env.env, Manner.draw(seed)), noise):
            action = np.clip(wanted + disturbance, -1, 1).astype(np.float32)
            outcome = self._env.step(action)
            actions.append(action)
            if success := outcome.success:
                break
            observations.append(outcome.observation)
        seen = observations[: len(actions)]
        stacked = {key: np.stack([observation[key] for observation in seen]) for key in seen[0]}
        return Demonstration(np.stack(actions), stacked, success)


class RoboMimic:
    """The benchmark."""

    name = "robomimic"
    robot_type = "panda"
    fps = 20.0
    action_names: tuple[str, ...] = ("x", "y", "z", "turn_x", "turn_y", "turn_z", "gripper")
    expert_kind = "scripted"
    tasks: tuple[str, ...] = tuple(ENVIRONMENTS)

    def __init__(self) -> None:
        self._robosuite = import_robosuite()  # a missing package is told at once

    @property
    def version(self) -> str:
        return f"robosuite {self._robosuite.__version__}, mujoco {importlib.metadata.version('mujoco')}"

    def expert(self, task: str, config: ExpertConfig) -> ScriptedExpert:
        self._check(task)
        return ScriptedExpert(task, config)

    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> RobosuiteEnv:
        self._check(task)
        controller = self._robosuite.load_controller_config(default_controller="OSC_POSE")
        options = {"robots": "Panda", "controller_configs": controller, "control_freq": int(self.fps)}
        return make_environment(ENVIRONMENTS[task], options, cameras, image_size)

    def conditions(self, task: str, split: Split) -> range:
        """Seeds; those of demonstrations are below 2^31."""
        return range(2**31, 2**31 + 2**20) if split == "selection" else range(2**31 + 2**30, 2**31 + 2**30 + 2**20)

    def _check(self, task: str) -> None:
        if task not in self.tasks:
            raise unknown_name("RoboMimic task", task, self.tasks)
