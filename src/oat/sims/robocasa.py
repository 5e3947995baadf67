"""Adapt four kitchen tasks of RoboCasa with a Panda arm on wheels (https://arxiv.org/abs/2406.02523).

Actions are 12 numbers in [-1, 1], 20 times a second: the hand's motion and turn (6), the gripper, the base's motion
(3), the torso, and a last one that is positive while the base drives. The state has 16: the base's position and
quaternion, the hand's in the base's frame, and the fingers' positions; the same keys are observed one by one, too.
Every condition is a kitchen of its own, which takes seconds to build.

RoboCasa is not on PyPI and its kitchens are a download of 10 GB. This adapter is written against the published API of
its release 0.2; it has been run with robosuite 1.5's own arm on wheels, not in a kitchen.
"""

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64

from oat.errors import MissingExtra, SimulatorError
from oat.interfaces import Expert, ExpertConfig, Simulator, Split
from oat.io.extras import import_extra
from oat.protocol import Protocol
from oat.sims.robosuite import BUILD_OPTIONS, RobosuiteEnv, import_robosuite

ROBOT = "PandaOmron"
STATE_KEYS = (
    "robot0_base_pos",
    "robot0_base_quat",
    "robot0_base_to_eef_pos",
    "robot0_base_to_eef_quat",
    "robot0_gripper_qpos",
)
# The numbers of an action that stay as they are while the robot holds still.
GRIPPER = 6
BASE_MODE = 11
ASSETS_COMMAND = "python -m robocasa.scripts.download_kitchen_assets"
INSTALL_COMMANDS = (
    "git clone https://github.com/robocasa/robocasa (release 0.2), pip install -e robocasa, "
    f"python -m robocasa.scripts.setup_macros, {ASSETS_COMMAND} (10 GB)"
)


class RoboCasaEnv(RobosuiteEnv):
    """Simulate one task, in another kitchen for every condition."""

    onlooker = "robot0_agentview_center"

    def __init__(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> None:
        robosuite = import_robosuite("1.5")
        options: dict[str, Any] = {
            **BUILD_OPTIONS,
            "hard_reset": True,  # another kitchen is another scene, which must be compiled
            "robots": ROBOT,
            "controller_configs": robosuite.load_composite_controller_config(robot=ROBOT),
            "control_freq": 20,
            "seed": 0,
        }
        super().__init__(
            lambda: robosuite.make(task, **options), STATE_KEYS, cameras, image_size, held=(GRIPPER, BASE_MODE)
        )

    def reset(self, condition: int) -> dict[str, np.ndarray]:
        """Begin an episode in the kitchen that a seed determines.

        Kitchens and placements are drawn from the environment's own generator, which its parts share: its state is set.
        """
        self.env.rng.bit_generator.state = np.random.default_rng(condition).bit_generator.state
        return super().reset(condition)

    def _command(self, action: Float64[np.ndarray, "12"]) -> Float64[np.ndarray, "12"]:
        """Return an action in the environment's order; versions of robosuite differ in it, demonstrations do not."""
        arm, gripper, base, torso, (mode,) = np.split(action, [6, 7, 10, 11])
        parts = {"right": arm, "right_gripper": gripper, "base": base, "torso": torso, "base_mode": mode}
        return np.asarray(self.env.robots[0].composite_controller.create_action_vector(parts))

    def vectors(self, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the state, and each of its parts under RoboCasa's names."""
        return super().vectors(values) | {f"observation.{key}": values[key].astype(np.float32) for key in STATE_KEYS}

    def _restart_controllers(self) -> None:
        """Do nothing: every kitchen comes with new controllers."""

    def foresee(self, actions: Float32[np.ndarray, "steps 12"]) -> Float[np.ndarray, "points 2"]:
        """Return no points: hand and base move together, so the path cannot be told from the actions."""
        return np.zeros((0, 2))


class RoboCasa(Simulator):
    """Describe the benchmark RoboCasa, whose environments and published demonstrations give the tasks their names."""

    name = "robocasa"
    robot_type = "panda_omron"
    fps = 20.0
    action_names = (
        *("x", "y", "z", "turn_x", "turn_y", "turn_z", "gripper"),
        *("base_x", "base_y", "base_turn", "torso", "base_mode"),
    )
    demonstrator = "human"
    protocol = Protocol("robocasa", max_steps=500, success="the first step at which RoboCasa's check of the task holds")
    main_camera = "robot0_agentview_center"
    tasks = ("CloseDrawer", "CoffeePressButton", "TurnOffMicrowave", "TurnOffSinkFaucet")

    def __init__(self) -> None:
        if importlib.util.find_spec("robocasa") is None:
            raise MissingExtra(
                "RoboCasa is not installed. It needs robosuite 1.5, where the other benchmarks need 1.4, and so an "
                f"environment of its own: {INSTALL_COMMANDS}"
            )
        self._robosuite = import_robosuite("1.5")
        self._robocasa = import_extra("robocasa", "robosuite")

    @property
    def version(self) -> str:
        """Return the versions of robocasa and robosuite."""
        return f"robocasa {self._robocasa.__version__}, robosuite {self._robosuite.__version__}"

    def expert(self, task: str, config: ExpertConfig) -> Expert:
        """Raise an error that says where the human demonstrations are."""
        raise SimulatorError(
            "RoboCasa is demonstrated by people and has no expert to collect from: fetch its HDF5 files with "
            "`python -m robocasa.scripts.download_datasets` and give them to --data"
        )

    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> RoboCasaEnv:
        """Build the environment of a task; it fails where RoboCasa's assets are missing."""
        self.check_task(task)
        try:
            return RoboCasaEnv(task, cameras, image_size)
        except OSError as error:
            raise SimulatorError(f"RoboCasa's kitchens are missing ({error}): {ASSETS_COMMAND}") from error

    def conditions(self, task: str, split: Split) -> range:
        """Return the seeds of a split; each determines a kitchen and the placement of its objects."""
        return range(2**20) if split == "selection" else range(2**30, 2**30 + 2**20)
