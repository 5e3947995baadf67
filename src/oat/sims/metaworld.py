"""Adapt MetaWorld's 50 tasks and their scripted experts (PyPI metaworld 3; https://arxiv.org/abs/1910.10897).

Observations are 39 numbers with the goal in the last three; actions are 4 numbers in [-1, 1]: hand x, y, z and gripper.
"""

import copy
import importlib.metadata
import warnings
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32, UInt8

from oat.data.episodes import IMAGES, STATE
from oat.interfaces import Demonstration, ExpertConfig, Outcome, Simulator, Split
from oat.io.extras import import_extra
from oat.protocol import Protocol
from oat.sims.rendering import CameraRenderer, prepare_graphics, project

_SUFFIX = "-v3"
_FRAME = 18  # numbers per frame in the state: the current one, the previous one, then the goal
_ONLOOKER = "corner4"  # the camera that shows best what the hand does
ACTION_DIM = 4
STATE_DIM = 39
MAX_STEPS = 500
FPS = 80.0


@cache
def _compiled(path: str) -> Any:
    """Return MuJoCo's model of a task, which takes ten times as long to compile as to copy."""
    return import_extra("mujoco", "metaworld").MjModel.from_xml_path(path)


def _begin_simulation(env: Any) -> tuple[Any, Any]:
    """Return a model of the task of its own, because resets move bodies in it, and its data."""
    mujoco = import_extra("mujoco", "metaworld")
    model = copy.copy(_compiled(env.fullpath))
    screen = model.vis.global_
    screen.offwidth = max(screen.offwidth, env.width)
    screen.offheight = max(screen.offheight, env.height)
    return model, mujoco.MjData(model)


def _touches(env: Any, object_geom_id: int) -> bool:
    """Return whether both pads of the gripper press on an object, as MetaWorld does, but for all contacts at once."""
    contact = env.data.contact
    on_object = (contact.geom == object_geom_id).any(1)

    def presses(pad: str) -> bool:
        touching = on_object & (contact.geom == env.data.geom(pad).id).any(1)
        return bool(sum(env.data.efc_force[contact.efc_address[touching]]) > 0)

    return presses("leftpad_geom") and presses("rightpad_geom")


@cache
def _find_task(task: str) -> Any:
    """Return MetaWorld's class of a task, with a tenth of the time to build it and a faster look at contacts."""
    env_dict = import_extra("metaworld.env_dict", "metaworld")
    found = env_dict.ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE[f"{task}{_SUFFIX}-goal-observable"]
    quicker = {"_initialize_simulation": _begin_simulation, "touching_object": _touches}
    # Beside it rather than below: its __init__ takes the class of the object for its own.
    return type(found.__name__, found.__bases__, {**vars(found), **quicker})


class MetaWorldEnv:
    """Simulate one task, with initial conditions that are a function of the seed.

    MetaWorld ignores `reset(seed)` and draws from numpy's global state; its own generator, seeded before every reset,
    is used here instead.
    """

    fps = FPS

    def __init__(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> None:
        prepare_graphics()
        self._env = _find_task(task)(seed=0)
        self._env._freeze_rand_vec = False  # draw a new condition at every reset …
        self._env.seeded_rand_vec = True  # … from the environment's own generator
        self._mujoco = import_extra("mujoco", "metaworld")
        self._cameras = cameras
        self._renderer = CameraRenderer(self._env.model, cameras, image_size) if cameras else None
        self._onlooker: CameraRenderer | None = None
        self._gripper = 0.0
        self.raw_state: np.ndarray = np.zeros(STATE_DIM)
        """The state in double precision, as the scripted experts expect it."""

    def reset(self, condition: int) -> dict[str, np.ndarray]:
        """Begin an episode at the initial condition that MetaWorld draws from this seed."""
        self._env.seed(condition)
        self._gripper = 0.0
        self._env.reset()
        self.raw_state = self._fresh_state()
        return self._observe()

    def _fresh_state(self) -> np.ndarray:
        """Return the state after a reset, with up-to-date poses.

        In ten tasks MetaWorld moves bodies at reset and reports where they were before. Recomputing poses touches
        nothing that the dynamics depend on.
        """
        self._mujoco.mj_kinematics(self._env.model, self._env.data)
        self._mujoco.mj_camlight(self._env.model, self._env.data)
        state = self._env._get_obs()
        current = state[:_FRAME].copy()
        state[_FRAME : 2 * _FRAME] = current  # there is no earlier frame yet
        self._env._prev_obs = current  # else the next state would hold the last episode's frame
        return np.asarray(state, np.float64)

    def step(self, action: Float32[np.ndarray, "4"], observe: bool = True) -> Outcome:
        """Take an action; its success is what MetaWorld's info says."""
        self.raw_state, _, _, _, info = self._env.step(action)
        self._gripper = float(action[-1])
        success = bool(info["success"])
        return Outcome(self._observe() if observe else {}, success, float(success))

    def hold(self) -> Float32[np.ndarray, "4"]:
        """Return the action without motion that keeps the gripper as it was commanded last."""
        return np.array([0, 0, 0, self._gripper], np.float32)

    def _observe(self) -> dict[str, np.ndarray]:
        observation = {STATE: self.raw_state.astype(np.float32)}
        for camera in self._cameras:
            assert self._renderer is not None
            observation[IMAGES + camera] = self._renderer.render(self._env.data, camera)
        return observation

    def render(self, size: int) -> UInt8[np.ndarray, "size size 3"]:
        """Return the picture of the camera that videos are made with."""
        if self._onlooker is None or self._onlooker.size != size:
            self._onlooker = CameraRenderer(self._env.model, (_ONLOOKER,), size)
        return self._onlooker.render(self._env.data, _ONLOOKER)

    def foresee(self, actions: Float32[np.ndarray, "steps 4"]) -> Float[np.ndarray, "points 2"]:
        """Return the hand's path in that picture, if the hand follows at once.

        An action moves the hand's target, which stays within the task's box.
        """
        env = self._env
        (target,) = env.data.mocap_pos
        path = [target]
        for move in env.action_scale * np.clip(actions[:, :3], -1, 1):
            path.append(np.clip(path[-1] + move, env.mocap_low, env.mocap_high))
        return project(env.model, env.data, _ONLOOKER, env.tcp_center + (np.stack(path) - target))


class ScriptedExpert:
    """Demonstrate a task with MetaWorld's own controller, until the first success or the time limit."""

    def __init__(self, task: str, environment: MetaWorldEnv, noise: float) -> None:
        policies = import_extra("metaworld.policies", "metaworld")
        self._policy: Any = policies.ENV_POLICY_MAP[task + _SUFFIX]()
        self._env = environment
        self._noise = noise

    def demonstrate(self, seed: int) -> Demonstration:
        """Make one attempt from the initial condition of a seed, with noise drawn from the same seed."""
        noise = self._noise * np.random.default_rng(seed).normal(size=(MAX_STEPS, ACTION_DIM))
        observation: Mapping[str, np.ndarray] = self._env.reset(seed)
        success = False
        observations: list[Mapping[str, np.ndarray]] = []
        actions: list[np.ndarray] = []
        with warnings.catch_warnings():  # once per episode: the experts warn at every step that their gain is high
            warnings.filterwarnings("ignore", "Constant", UserWarning)
            while not success and len(actions) < MAX_STEPS:
                action = (self._policy.get_action(self._env.raw_state) + noise[len(actions)]).astype(np.float32)
                action = np.minimum(np.maximum(action, -1), 1)  # np.clip takes three times as long on four numbers
                observations.append(observation)
                actions.append(action)
                outcome = self._env.step(action)
                observation = outcome.observation
                success = outcome.success
        stacked = {key: np.stack([o[key] for o in observations]) for key in observation}
        return Demonstration(np.stack(actions), stacked, success)


class MetaWorld(Simulator):
    """Describe the benchmark MetaWorld, whose scripted experts demonstrate all tasks."""

    name = "metaworld"
    robot_type = "sawyer"
    fps = FPS
    action_names = ("x", "y", "z", "gripper")
    demonstrator = "scripted"
    protocol = Protocol("metaworld", max_steps=MAX_STEPS, success="the first step whose info says success")
    study_tasks: ClassVar[tuple[str, ...]] = ("box-close", "coffee-pull", "disassemble", "stick-pull")
    main_camera = "corner2"
    hand_position = slice(0, 3)

    @property
    def version(self) -> str:
        """Return the version of the package metaworld."""
        return f"metaworld {importlib.metadata.version('metaworld')}"

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Return the tasks that MetaWorld has a controller for, without the suffix of their version."""
        prepare_graphics()
        names = import_extra("metaworld.policies", "metaworld").ENV_POLICY_MAP
        return tuple(sorted(name.removesuffix(_SUFFIX) for name in names))

    def expert(self, task: str, config: ExpertConfig) -> ScriptedExpert:
        """Return MetaWorld's own controller for a task."""
        self.check_task(task)
        return ScriptedExpert(task, self.make(task, config.cameras, config.image_size), config.noise)

    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> MetaWorldEnv:
        """Build the environment of a task, which renders through these cameras."""
        self.check_task(task)
        return MetaWorldEnv(task, cameras, image_size)

    def conditions(self, task: str, split: Split) -> range:
        """Return the seeds of a split; those of demonstrations are below 2^31."""
        return range(2**31, 2**31 + 2**20) if split == "selection" else range(2**31 + 2**30, 2**31 + 2**30 + 2**20)
