"""Adapt four kitchen tasks of RoboCasa with a Panda arm on wheels (https://arxiv.org/abs/2406.02523).

Actions are 12 numbers in [-1, 1], 20 times a second: the hand's motion and turn (6), the gripper, the base's motion
(3), the torso, and a last one that is positive while the base drives. The state has 24: the base's position and
quaternion, the hand's in the base's frame, the fingers' positions (16 together, under RoboCasa's names one by one, too)
and the part of the kitchen that the task is about: its position and quaternion in the base's frame, and how far it is
open, turned or switched on. Every condition is a kitchen of its own, which takes seconds to build; a task's name may
choose its layout and style, as CloseDrawer@layout=1,style=2 does.
"""

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64

from oat.data.episodes import STATE
from oat.data.hdf5_demos import ROBOCASA_TASKS, is_robocasa, read_attributes
from oat.errors import SimulatorError
from oat.interfaces import Expert, ExpertConfig, Simulator, Split
from oat.io.extras import import_extra
from oat.protocol import Protocol
from oat.sims.robocasa_assets import explain_missing, find_assets, import_robocasa, use_assets
from oat.sims.robocasa_conditions import Start, Starts, fingerprint
from oat.sims.robocasa_experts import EXPERTS
from oat.sims.robocasa_files import check_env_args, place_bodies, read_kitchen
from oat.sims.robocasa_tasks import KitchenTask
from oat.sims.robosuite import BUILD_OPTIONS, RobosuiteEnv, import_robosuite
from oat.sims.scripted import ScriptedExpert, step_limit

ROBOT = "PandaOmron"
CAMERAS = ("robot0_agentview_left", "robot0_agentview_right", "robot0_eye_in_hand")
"""The cameras of the published demonstrations."""
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
HELD_STEPS = 5  # a demonstration ends when success has held for so long


def _drawer(env: Any) -> tuple[str, float]:
    """Return the drawer's front, and how far it is open."""
    (opened,) = env.drawer.get_door_state(env=env).values()
    return f"{env.drawer.name}_door_door", float(opened)


def _coffee_machine(env: Any) -> tuple[str, float]:
    """Return the coffee machine's start button, and whether it is on."""
    machine = env.coffee_machine
    return f"{machine.naming_prefix}{machine._start_button_names[0]}", float(machine.get_state()["turned_on"])


def _microwave(env: Any) -> tuple[str, float]:
    """Return the microwave's stop button, and whether it is on."""
    return f"{env.microwave.naming_prefix}stop_button", float(env.microwave.get_state()["turned_on"])


def _faucet(env: Any) -> tuple[str, float]:
    """Return the faucet's handle, and how far it is turned."""
    return f"{env.sink.name}_handle_main", float(env.sink.get_handle_state(env)["handle_joint"])


PARTS: dict[str, Callable[[Any], tuple[str, float]]] = {
    "CloseDrawer": _drawer,
    "StartCoffeeMachine": _coffee_machine,
    "TurnOffMicrowave": _microwave,
    "TurnOffSinkFaucet": _faucet,
}
"""By task the geometry that it is about, and a number that says how far it is open, turned or switched on."""
FIXTURES = {
    "CloseDrawer": "drawer",
    "StartCoffeeMachine": "coffee_machine",
    "TurnOffMicrowave": "microwave",
    "TurnOffSinkFaucet": "sink",
}
"""By task the name that its environment has for the fixture that it is about."""
INSTRUCTIONS = {task: ROBOCASA_TASKS[task] for task in PARTS}


class RoboCasaEnv(RobosuiteEnv):
    """Simulate one task, in another kitchen for every condition."""

    onlooker = "robot0_agentview_center"
    start = ""
    """The fingerprint of the stored start of this episode; empty where it began elsewhere."""

    def __init__(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> None:
        robosuite = import_robosuite()
        import_robocasa()
        self._assets = find_assets()
        use_assets(self._assets)
        choice = KitchenTask.parse(task)
        self._task = choice.name
        self._starts = Starts(self._assets.digest, task)
        options: dict[str, Any] = {
            **{key: value for key, value in BUILD_OPTIONS.items() if key != "hard_reset"},  # it always is
            "robots": ROBOT,
            "controller_configs": robosuite.load_composite_controller_config(robot=ROBOT),
            "control_freq": 20,
            "layout_and_style_ids": choice.scenes(self._assets),
        }

        def build() -> Any:
            env = robosuite.make(choice.name, **options)
            env.reset()  # only now it has a kitchen
            return env

        super().__init__(build, STATE_KEYS, cameras, image_size, held=(GRIPPER, BASE_MODE))

    def draw(self, seed: int) -> dict[str, np.ndarray]:
        """Begin an episode of a demonstration, in a kitchen that is drawn and not kept, and that no condition has."""
        self.start = ""
        self.env.unset_ep_meta()
        with explain_missing():
            return super().reset(2**31 + seed)

    def reset(self, condition: int) -> dict[str, np.ndarray]:
        """Begin an episode at the stored start of a condition, which is drawn where there is none yet."""
        start = self._starts.find(condition)
        drawn = None
        if start is None:
            drawn = self._draw(condition)  # which also builds it
            start = self._starts.keep(condition, drawn)
        # What is kept may be another process's start, if that was faster.
        if drawn is None or drawn.fingerprint != start.fingerprint:
            self._rebuild(start.kitchen)
        if fingerprint(self.env.sim.model._model) != start.scene:
            path = self._starts.path(condition)
            raise SimulatorError(f"the kitchen of {path} cannot be rebuilt with these assets and packages: remove it")
        self.show(start.state)
        self.start = start.fingerprint
        return self._begin()

    def _draw(self, condition: int) -> Start:
        """Draw a kitchen, and return it as it is when it is rebuilt, which draws nothing."""
        self.env.unset_ep_meta()
        self.env.rng.bit_generator.state = np.random.default_rng(condition).bit_generator.state
        with explain_missing():
            self.env.reset()
        kitchen = json.loads(json.dumps(self.env.get_ep_meta(), default=np.ndarray.tolist))
        self._rebuild(kitchen)
        return Start(kitchen, fingerprint(self.env.sim.model._model), self.simulator_state)

    def _rebuild(self, kitchen: dict[str, Any]) -> None:
        """Build a kitchen from its description; what that leaves open is drawn from the same seed every time."""
        self.start = ""
        self.env.set_ep_meta(copy.deepcopy(kitchen))
        with explain_missing():
            super().reset(0)

    def reset_to(
        self, state: Float64[np.ndarray, " state"], scene: str | None = None, about: str | None = None
    ) -> dict[str, np.ndarray]:
        """Begin an episode at another state, in the kitchen of now or in one that a file describes in `ep_meta`."""
        self._rebuild(self.env.get_ep_meta() if about is None else read_kitchen(about, self._assets))
        if scene is not None:
            place_bodies(self.env.sim.model._model, scene)
        self.show(state)
        return self._begin()

    def _put(self, state: Float64[np.ndarray, " state"]) -> None:
        """Put everything where a state has it, and remember what is pressed there, as states are shown in order.

        A button that was touched only in between is noticed when it is touched at the end of a step.
        """
        super()._put(state)
        self._about.update_state(self.env)

    def _advance(self, action: Float64[np.ndarray, "12"]) -> None:
        """Take an action, and let the fixture that the task is about remember, such as that its button was pressed."""
        super()._advance(action)
        self._about.update_state(self.env)

    @property
    def _about(self) -> Any:
        """Return the fixture that the task is about, which every reset makes anew."""
        return getattr(self.env, FIXTURES[self._task])

    def _model_and_data(self) -> tuple[Any, Any]:
        """Return MuJoCo's model and data, in which other fixtures look as they are, such as water that runs."""
        for fixture in self.env.fixtures.values():
            if self._cameras and fixture is not self._about:
                fixture.update_state(self.env)
        return super()._model_and_data()

    def vectors(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the state with the task's part of the kitchen, and the robot's parts of it under RoboCasa's names."""
        parts = {f"observation.{key}": values[key].astype(np.float32) for key in STATE_KEYS}
        robot = super().vectors(values)[STATE]
        return {STATE: np.concatenate([robot, self._fixture(values)]), **parts}

    def _fixture(self, values: Mapping[str, np.ndarray]) -> Float32[np.ndarray, "8"]:
        """Return the pose of the part that the task is about in the base's frame, and how far it is open or on."""
        transforms = import_extra("robosuite.utils.transform_utils", "robocasa")
        name, value = PARTS[self._task](self.env)
        data = self.env.sim.data
        geometry = self.env.sim.model.geom_name2id(name)
        base = transforms.quat2mat(values["robot0_base_quat"])
        position = base.T @ (data.geom_xpos[geometry] - values["robot0_base_pos"])
        quaternion = transforms.mat2quat(base.T @ data.geom_xmat[geometry].reshape(3, 3))
        return np.concatenate([position, quaternion, [value]]).astype(np.float32)

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
    demonstrator = "scripted"
    protocol = Protocol(
        "robocasa",
        max_steps=step_limit(132, own=300),  # of the faucet; RoboCasa 1.0 allows 300 for the drawer, 200 for others
        success="the first step at which RoboCasa's check of the task holds",
    )
    main_camera = "robot0_agentview_left"
    tasks = tuple(PARTS)

    def __init__(self) -> None:
        self._robosuite = import_robosuite()
        self._robocasa = import_robocasa()

    @property
    def version(self) -> str:
        """Return the versions of robocasa and robosuite, and whose kitchens they are."""
        versions = f"robocasa {self._robocasa.__version__}, robosuite {self._robosuite.__version__}"
        return f"{versions}, {find_assets().name}"

    def expert(self, task: str, config: ExpertConfig) -> Expert:
        """Return the script that demonstrates a task."""
        env = self.make(task, config.cameras, config.image_size)
        script = EXPERTS[KitchenTask.parse(task).name]
        return ScriptedExpert(env, env.draw, script, config.noise, self.protocol.max_steps, HELD_STEPS)

    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> RoboCasaEnv:
        """Build the environment of a task, which renders through these cameras."""
        self.check_task(task)
        with explain_missing():
            return RoboCasaEnv(task, cameras, image_size)

    @staticmethod
    def recognizes(attributes: Mapping[str, Any]) -> bool:
        """Return whether a file is RoboCasa's."""
        return is_robocasa(attributes)

    @staticmethod
    def environment_of(file: Path, cameras: tuple[str, ...] = (), image_size: int = 128) -> RoboCasaEnv:
        """Return the environment of the task that a file's `env_args` name."""
        task = check_env_args(read_attributes(file)["env_args"], ROBOT, PARTS, str(file))
        return RoboCasa().make(task, cameras, image_size)

    def instruction(self, task: str) -> str:
        """Return RoboCasa's words for a task; which drawer it is, on the left or right, is left to be seen."""
        return INSTRUCTIONS[KitchenTask.parse(task).name]

    def check_task(self, task: str) -> None:
        """Raise an error for a task that there is not, or for a layout or style that the assets lack."""
        KitchenTask.parse(task).check(self.tasks)

    def conditions(self, task: str, split: Split) -> range:
        """Return the numbers of the starts of a split; those of demonstrations begin at 2^31."""
        return range(2**20, 2**21) if split == "selection" else range(2**30, 2**30 + 2**20)
