"""RoboMimic's Lift, Can and Square in robosuite (https://arxiv.org/abs/2108.03298), with scripted experts.

Actions are 7 numbers in [-1, 1], 20 times a second: the hand's motion (of 5 cm), its turn about x, y, z (of 0.5 rad)
and the gripper (-1 opens, 1 closes). The state has 23 numbers: the hand's position (3) and quaternion (4), the fingers'
positions (2) and robomimic's `object` (14, the last four of which are zero for Lift). All but the last are observed one
by one, too, under robomimic's names, for policies that see objects through cameras.
"""

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from oat.data.hdf5 import ROBOMIMIC_STATE, ROBOMIMIC_STATE_DIM
from oat.data.hdf5_demos import ROBOMIMIC_TASKS, read_attributes
from oat.errors import MissingKey, unknown_name
from oat.interfaces import Demonstration, ExpertConfig, Split
from oat.sims.env_args import translate_env_args
from oat.sims.robomimic_experts import EXPERTS, Manner
from oat.sims.robosuite import BUILD_OPTIONS, RobosuiteEnv, import_robosuite

ENVIRONMENTS = {task: name for name, task in ROBOMIMIC_TASKS.items()}
ROBOT_KEYS = tuple(key for key in ROBOMIMIC_STATE if key != "object")
CUBE = "cube_g0"
ACTION_DIM, MAX_STEPS = 7, 400


class RoboMimicEnv(RobosuiteEnv):
    """An environment of robosuite that observes as robomimic does."""

    def __init__(
        self, name: str, options: Mapping[str, Any], cameras: tuple[str, ...] = (), image_size: int = 128
    ) -> None:
        robosuite = import_robosuite()
        super().__init__(
            lambda: robosuite.make(name, **options, **BUILD_OPTIONS),
            (*ROBOT_KEYS, "object-state"),
            cameras,
            image_size,
            state_dim=ROBOMIMIC_STATE_DIM,
        )

    def _load(self, scene: str) -> None:
        """Every scene of Lift has a cube of its own size, and nothing else varies; compiling takes a second."""
        sizes = {geom.get("name"): geom.get("size", "") for geom in ElementTree.fromstring(scene).iter("geom")}
        if CUBE not in sizes:
            return
        size = np.array(sizes[CUBE].split(), np.float64)
        if not np.allclose(self.env.sim.model._model.geom(CUBE).size, size, atol=1e-6):  # XML has six digits
            model = ElementTree.fromstring(self.env.model.get_xml())
            for geom in model.iter("geom"):
                if geom.get("name") in (CUBE, f"{CUBE}_vis"):
                    geom.set("size", sizes[CUBE])
            self.env.reset_from_xml_string(ElementTree.tostring(model, "unicode"))

    def vectors(self, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return super().vectors(values) | {f"observation.{key}": values[key].astype(np.float32) for key in ROBOT_KEYS}


def environment_of(file: Path, cameras: tuple[str, ...] = (), image_size: int = 128) -> RoboMimicEnv:
    """The environment in which a robomimic file's demonstrations were given."""
    env_args = read_attributes(file).get("env_args")
    if not isinstance(env_args, dict):
        raise MissingKey(f"{file}: data has no attribute 'env_args' that describes the environment")
    return RoboMimicEnv(*translate_env_args(env_args, str(file)), cameras, image_size)


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

    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> RoboMimicEnv:
        self._check(task)
        controller = self._robosuite.load_controller_config(default_controller="OSC_POSE")
        options = {"robots": "Panda", "controller_configs": controller, "control_freq": int(self.fps)}
        return RoboMimicEnv(ENVIRONMENTS[task], options, cameras, image_size)

    def conditions(self, task: str, split: Split) -> range:
        """Seeds; those of demonstrations are below 2^31."""
        return range(2**31, 2**31 + 2**20) if split == "selection" else range(2**31 + 2**30, 2**31 + 2**30 + 2**20)

    def _check(self, task: str) -> None:
        if task not in self.tasks:
            raise unknown_name("RoboMimic task", task, self.tasks)
