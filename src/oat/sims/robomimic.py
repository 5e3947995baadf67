"""Adapt RoboMimic's Lift, Can and Square in robosuite (https://arxiv.org/abs/2108.03298), with scripted experts.

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

from oat.data.episodes import STATE
from oat.data.hdf5 import ROBOMIMIC_STATE, ROBOMIMIC_STATE_DIM
from oat.data.hdf5_demos import ROBOMIMIC_TASKS, is_robocasa, read_attributes
from oat.interfaces import ExpertConfig, Simulator, Split
from oat.io.extras import import_extra
from oat.protocol import Protocol
from oat.sims.env_args import translate_env_args
from oat.sims.robomimic_experts import EXPERTS
from oat.sims.robosuite import BUILD_OPTIONS, RobosuiteEnv, arm_controller, import_robosuite
from oat.sims.scripted import ScriptedExpert, step_limit

ENVIRONMENTS = {task: name for name, task in ROBOMIMIC_TASKS.items()}
ROBOT_KEYS = tuple(key for key in ROBOMIMIC_STATE if key != "object")
OBJECTS = {"Lift": "cube", "PickPlaceCan": "Can", "NutAssemblySquare": "SquareNut"}
CUBE = "cube_g0"
MAX_STEPS = step_limit(210, own=400)  # of square


class RoboMimicEnv(RobosuiteEnv):
    """Simulate a task in robosuite, with the observations of robomimic."""

    def __init__(
        self, name: str, options: Mapping[str, Any], cameras: tuple[str, ...] = (), image_size: int = 128
    ) -> None:
        robosuite = import_robosuite()
        self._object = OBJECTS[name]
        super().__init__(
            lambda: robosuite.make(name, **options, **BUILD_OPTIONS),
            (*ROBOT_KEYS, f"{self._object}_pos", f"{self._object}_quat"),
            cameras,
            image_size,
        )

    def _load(self, scene: str) -> None:
        """Give Lift's cube the size that it has in a stored scene; nothing else varies between scenes.

        Compiling a scene takes a second, which is spent only where the size differs.
        """
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

    def vectors(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the state, and the robot's parts of it under robomimic's names."""
        state = super().vectors(values)[STATE]
        state = np.concatenate([state, *self._object_from_hand(values)]).astype(np.float32)
        # Grippers of other arms than the Panda have more joints, and their states more numbers.
        return {STATE: np.pad(state, (0, max(0, ROBOMIMIC_STATE_DIM - len(state))))} | {
            f"observation.{key}": values[key].astype(np.float32) for key in ROBOT_KEYS
        }

    def _object_from_hand(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return where the object is seen from the hand, in the order and sense of robosuite 1.4.

        In robosuite 1.5 they are others, and for Can and Square those of a step ago.
        """
        position = values[f"{self._object}_pos"]
        if self._object == "cube":
            return (values["robot0_eef_pos"] - position,)
        transforms = import_extra("robosuite.utils.transform_utils", "robosuite")
        hand = transforms.pose2mat((values["robot0_eef_pos"], values["robot0_eef_quat"]))
        there = transforms.pose2mat((position, values[f"{self._object}_quat"]))
        return transforms.mat2pose(transforms.pose_in_A_to_pose_in_B(there, transforms.pose_inv(hand)))


class RoboMimic(Simulator):
    """Describe the benchmark RoboMimic, with our scripts in place of its human demonstrations."""

    name = "robomimic"
    robot_type = "panda"
    fps = 20.0
    action_names = ("x", "y", "z", "turn_x", "turn_y", "turn_z", "gripper")
    demonstrator = "scripted"
    protocol = Protocol(
        "robomimic", max_steps=MAX_STEPS, success="the first step at which robosuite's check of the task holds"
    )
    main_camera = "agentview"
    hand_position = slice(0, 3)
    tasks = tuple(ENVIRONMENTS)

    def __init__(self) -> None:
        self._robosuite = import_robosuite()  # a missing package is told at once

    @property
    def version(self) -> str:
        """Return the versions of robosuite and MuJoCo."""
        return f"robosuite {self._robosuite.__version__}, mujoco {importlib.metadata.version('mujoco')}"

    def expert(self, task: str, config: ExpertConfig) -> ScriptedExpert:
        """Return the script that demonstrates a task."""
        self.check_task(task)
        env = self.make(task, config.cameras, config.image_size)
        return ScriptedExpert(env, env.reset, EXPERTS[task], config.noise, MAX_STEPS)

    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> RoboMimicEnv:
        """Build the environment of a task, which renders through these cameras."""
        self.check_task(task)
        options = {
            "robots": "Panda",
            "controller_configs": arm_controller(self._robosuite),
            "control_freq": int(self.fps),
            "lite_physics": False,
        }
        return RoboMimicEnv(ENVIRONMENTS[task], options, cameras, image_size)

    @staticmethod
    def recognizes(attributes: Mapping[str, Any]) -> bool:
        """Return whether a file is robomimic's; LIBERO's have the same `env_args`, and `problem_info` beside it."""
        others = "problem_info" in attributes or is_robocasa(attributes)
        return isinstance(attributes.get("env_args"), dict) and not others

    @staticmethod
    def environment_of(file: Path, cameras: tuple[str, ...] = (), image_size: int = 128) -> RoboMimicEnv:
        """Return the environment that the `env_args` of a robomimic file describe."""
        name, options = translate_env_args(read_attributes(file)["env_args"], str(file))
        return RoboMimicEnv(name, options, cameras, image_size)

    def conditions(self, task: str, split: Split) -> range:
        """Return the seeds of a split; those of demonstrations are below 2^31."""
        return range(2**31, 2**31 + 2**20) if split == "selection" else range(2**31 + 2**30, 2**31 + 2**30 + 2**20)
