"""Simulate tasks in robosuite (https://arxiv.org/abs/2009.12293), which RoboMimic, LIBERO and RoboCasa are based on.

An environment is built once and reset in milliseconds, to a seed or to a stored simulator state. Equal conditions give
bit-equal episodes. Every observation is a function of the simulator's state alone, so that one that is computed from
stored states is the one that was seen live. A benchmark gives `RobosuiteEnv` a function that builds its environment
(with `BUILD_OPTIONS`, so that nothing is rendered unasked) and the names of the sensors that make up the state:

    RobosuiteEnv(lambda: robosuite.make("Lift", robots="Panda", **BUILD_OPTIONS), ("cube_pos", "robot0_eef_pos"))
"""

import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64, UInt8

from oat.data.episodes import IMAGES, STATE
from oat.errors import InvalidActions, MissingExtra, SimulatorError
from oat.interfaces import Outcome
from oat.io.extras import DISTRIBUTION, import_extra
from oat.sims.rendering import CameraRenderer, prepare_graphics, project
from oat.sims.stepping import PlainStepper, Stepper

BUILD_OPTIONS: Mapping[str, Any] = {
    "has_renderer": False,
    "has_offscreen_renderer": False,  # ours is many times faster
    "use_camera_obs": False,
    "renderer": "mujoco",  # its other one opens a window
    "ignore_done": True,  # the protocol limits episodes
    "hard_reset": False,  # a reset moves things instead of compiling the scene again
    "seed": 0,  # what a build draws, such as the size of Lift's cube, is alike in every process
}
GENERATION = "1.5"
UPGRADE_COMMAND = "pip install --no-deps praxis-robosuite==1.5.2.post1"
INSTALL_COMMAND = f"pip install '{DISTRIBUTION}[robosuite]' && {UPGRADE_COMMAND}"
ARM = "right"  # as robosuite calls the only arm
_COLLISION_GROUP = 0  # the geometries that robosuite does not show


def import_robosuite() -> ModuleType:
    """Import robosuite without its log file, its messages and its own choice of a graphics library."""
    prepare_graphics()
    if sys.modules.get("robosuite") is None:
        package = importlib.util.find_spec("robosuite")
        if package is None:  # no extra brings it: what it declares would change other packages' versions
            raise MissingExtra(f"robosuite is not installed: {INSTALL_COMMAND}")
        _settle_macros(Path(str(package.origin)).with_name("macros.py"))
    robosuite = import_extra("robosuite", "robosuite")
    if not robosuite.__version__.startswith(GENERATION):
        raise SimulatorError(
            f"this is written for robosuite {GENERATION}, and {robosuite.__version__} is installed: {UPGRADE_COMMAND}"
        )
    return robosuite


def _settle_macros(file: Path) -> None:
    """Change the settings that robosuite reads while it is imported, and skip its search for a user's own."""
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)
    sys.modules["robosuite.macros_private"] = ModuleType("robosuite.macros_private")  # else it warns that none exists
    spec = importlib.util.spec_from_file_location("robosuite.macros", file)
    assert spec is not None
    assert spec.loader is not None
    macros = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(macros)
    for setting in ("CONSOLE_LOGGING_LEVEL", "FILE_LOGGING_LEVEL", "MUJOCO_GPU_RENDERING"):
        setattr(macros, setting, None)
    sys.modules["robosuite.macros"] = macros


def arm_controller(robosuite: ModuleType) -> dict[str, Any]:
    """Return the controller of one arm whose actions are motions of the hand in the world, as robosuite 1.4 has it."""
    arm = robosuite.load_part_controller_config(default_controller="OSC_POSE")
    return {"type": "BASIC", "body_parts": {ARM: arm | {"input_ref_frame": "world", "gripper": {"type": "GRIP"}}}}


@contextmanager
def numpy_seeded(seed: int) -> Iterator[None]:
    """Seed numpy's global generator, from which robosuite draws, and restore its state at the end of the block."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


class RobosuiteEnv:
    """Simulate one task of a benchmark on robosuite."""

    onlooker = "agentview"
    """The camera of videos."""
    stepper: type[Stepper | PlainStepper] = Stepper
    """What takes the steps: `PlainStepper` is robosuite's own way, to the same states."""

    def __init__(
        self,
        build: Callable[[], Any],
        sensors: Sequence[str],
        cameras: tuple[str, ...] = (),
        image_size: int = 128,
        *,
        held: Sequence[int] = (-1,),
        effects: bool = False,
    ) -> None:
        """Build the environment, which is observed through the sensors of these names.

        A sensor must be a function of the simulator's state alone: some of robosuite 1.5 return what was true a step
        ago. `held` are the numbers of an action that `hold` repeats: those of the gripper. With `effects` images are as
        robosuite renders them, which takes longer.
        """
        self._mujoco = import_extra("mujoco", "robosuite")
        with numpy_seeded(0):  # parts of benchmarks still draw from numpy's generator
            self.env = build()
        """The robosuite environment, for experts that look behind the observations."""
        self._sensors = tuple(sensors)
        self._held = list(held)
        self._cameras = cameras
        self._image_size = image_size
        self._effects = effects
        self._renderer: CameraRenderer | None = None
        self._film: CameraRenderer | None = None
        self._last_action = np.zeros(self.env.action_dim, np.float32)
        if cameras:
            self._open_renderer()  # a camera that does not exist is told at once

    def reset(self, condition: int) -> dict[str, np.ndarray]:
        """Begin an episode where robosuite's own reset puts robot and objects for this seed.

        Some parts draw from the environment's own generator, which they share: its state is set. Others draw from
        numpy's.
        """
        self.env.rng.bit_generator.state = np.random.default_rng(condition).bit_generator.state
        with numpy_seeded(condition):
            self.env.reset()
        return self._begin()

    def reset_to(
        self, state: Float64[np.ndarray, " state"], scene: str | None = None, about: str | None = None
    ) -> dict[str, np.ndarray]:
        """Begin an episode at a stored simulator state, in the scene that is stored with it as XML.

        `about` is what else a file says about the episode, which only some benchmarks need.
        """
        self.reset(0)
        if scene is not None:
            self._load(scene)
        self.show(state)
        return self._begin()

    def _load(self, scene: str) -> None:
        """Take over from a stored scene what a benchmark draws when it builds one; by default there is nothing."""

    def _begin(self) -> dict[str, np.ndarray]:
        """Clear what the last episode left: what controllers have cached, the solver's first guess, the last action."""
        self._restart_controllers()
        self.env.sim.data.qacc_warmstart[:] = 0
        self._last_action[:] = 0
        self._stepper = self.stepper(self.env)  # a reset makes new controllers
        return self.observe()

    def _restart_controllers(self) -> None:
        """Tell every controller that its robot begins in the joint positions of now."""
        for robot in self.env.robots:
            robot.part_controllers[ARM].update_initial_joints(self.env.sim.data.qpos[robot._ref_arm_joint_pos_indexes])
            robot.composite_controller.update_state()  # an arm on wheels remembers where they were

    def show(self, state: Float64[np.ndarray, " state"]) -> dict[str, np.ndarray]:
        """Return what is observed at a simulator state; an episode cannot be continued from there."""
        expected = len(self.simulator_state)
        if state.shape != (expected,):
            raise SimulatorError(f"the simulator's state has {expected} numbers in this scene, got {state.shape}")
        self._put(state)
        return self.observe()

    def _put(self, state: Float64[np.ndarray, " state"]) -> None:
        """Put robot and objects where a simulator state has them."""
        self.env.sim.set_state_from_flattened(state)
        self.env.sim.forward()

    @property
    def simulator_state(self) -> Float64[np.ndarray, " state"]:
        """Return time, positions and velocities, as robomimic and LIBERO store them."""
        return np.asarray(self.env.sim.get_state().flatten(), np.float64)

    def step(self, action: Float32[np.ndarray, " action_dim"], observe: bool = True) -> Outcome:
        """Take an action; its success is what the benchmark's own check says."""
        if action.shape != self._last_action.shape or not np.isfinite(action).all():
            raise InvalidActions(f"actions are {len(self._last_action)} finite numbers, got {action.tolist()}")
        self._advance(action.astype(np.float64))
        self._last_action[:] = action
        success = bool(self.env._check_success())
        return Outcome(self.observe() if observe else {}, success, float(success))

    def _advance(self, action: Float64[np.ndarray, " action_dim"]) -> None:
        """Take an action; a benchmark adds what its own environment does after each."""
        self._stepper.step(action)

    def hold(self) -> Float32[np.ndarray, " action_dim"]:
        """Return the action without motion that keeps the gripper as it was commanded last."""
        action = np.zeros_like(self._last_action)
        action[self._held] = self._last_action[self._held]
        return action

    def observe(self) -> dict[str, np.ndarray]:
        """Return the observation of the current state."""
        _, data = self._model_and_data()
        observables = self.env._observables
        observation = self.vectors({name: np.asarray(observables[name]._sensor({})) for name in self._sensors})
        if self._cameras:
            renderer = self._open_renderer()
            observation |= {IMAGES + camera: renderer.render(data, camera) for camera in self._cameras}
        return observation

    def _model_and_data(self) -> tuple[Any, Any]:
        """Return MuJoCo's model and data, with poses that are up to date.

        After a step the poses are those of the state before its last substep. Recomputing them touches nothing that the
        dynamics depend on.
        """
        model = self.env.sim.model._model
        data = self.env.sim.data._data
        self._mujoco.mj_kinematics(model, data)
        self._mujoco.mj_camlight(model, data)
        return model, data

    @property
    def fps(self) -> float:
        """Return the number of actions per second of simulated time."""
        return float(self.env.control_freq)

    def render(self, size: int) -> UInt8[np.ndarray, "size size 3"]:
        """Return what an onlooker sees, for videos."""
        model, data = self._model_and_data()
        if self._film is None or self._film.model is not model or self._film.size != size:
            self._film = CameraRenderer(model, (self.onlooker,), size, hidden_groups=(_COLLISION_GROUP,))
        return self._film.render(data, self.onlooker)

    def foresee(self, actions: Float32[np.ndarray, "steps action_dim"]) -> Float[np.ndarray, "points 2"]:
        """Return the hand's path in the onlooker's picture.

        An action sets a goal so far from where the hand is, and a spring and a damper pull it there: when the next goal
        is set, it has gone about kp / kd times the duration of a step of the way.
        """
        controller = self.env.robots[0].part_controllers[ARM]
        if getattr(controller, "input_type", None) != "delta":
            return np.zeros((0, 2))
        goals = np.stack([controller.scale_action(action[: controller.control_dim])[:3] for action in actions])
        moves = goals * controller.kp[:3] / controller.kd[:3] / self.fps
        path = controller.ref_pos + np.concatenate([np.zeros((1, 3)), np.cumsum(moves, axis=0)])
        return project(*self._model_and_data(), self.onlooker, path)

    def vectors(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return what is observed besides images, from the values of the sensors."""
        return {STATE: np.concatenate([np.atleast_1d(values[name]) for name in self._sensors]).astype(np.float32)}

    def _open_renderer(self) -> CameraRenderer:
        """Return a renderer of the scene as it is compiled now; a new scene needs a new one."""
        model = self.env.sim.model._model
        if self._renderer is None or self._renderer.model is not model:
            self._renderer = CameraRenderer(
                model, self._cameras, self._image_size, hidden_groups=(_COLLISION_GROUP,), effects=self._effects
            )
        return self._renderer
