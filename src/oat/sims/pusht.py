"""Adapt PushT: a disc pushes a T-shaped block onto its outline (PyPI gym-pusht; https://arxiv.org/abs/2303.04137).

Actions are where the disc is to go, observations are those of the published human demonstrations: the state (disc x, y,
block x, y, angle) and the image `img`. Lengths are in pixels of a 512 × 512 window.
"""

import importlib.metadata
import os
from types import ModuleType

import numpy as np
from jaxtyping import Float, Float32, UInt8

from oat.data.episodes import IMAGES, STATE
from oat.errors import SimulatorError, unknown_name
from oat.interfaces import Expert, ExpertConfig, Outcome, Simulator, Split
from oat.io.extras import import_extra
from oat.protocol import Protocol

CAMERA = "img"
FPS = 10.0
DEMONSTRATIONS = "https://diffusion-policy.cs.columbia.edu/data/training/pusht.zip"

_WINDOW = 512  # pixels


def import_gym_pusht() -> ModuleType:
    """Return gym-pusht's environments; their pygame draws in memory, opens no window and prints no greeting."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    return import_extra("gym_pusht.envs", "pusht")


class PushTEnv:
    """Simulate the task; its score is the share of the outline that the block covers, where 95 % are enough."""

    fps = FPS

    def __init__(self, cameras: tuple[str, ...] = (), image_size: int = 96) -> None:
        for camera in cameras:
            if camera != CAMERA:
                raise unknown_name("camera", camera, [CAMERA])
        self._env = import_gym_pusht().PushTEnv(
            obs_type="state", observation_width=image_size, observation_height=image_size
        )
        self._cameras = cameras

    def reset(self, condition: int) -> dict[str, np.ndarray]:
        """Begin an episode where gym-pusht puts disc and block for this seed."""
        state, _ = self._env.reset(seed=condition)
        return self._observe(state)

    def reset_to(self, state: Float32[np.ndarray, "5"]) -> dict[str, np.ndarray]:
        """Begin an episode at a state as it is observed.

        A turn of the block is about its centre of mass and so moves its origin, which the state describes: the angle
        comes first. gym-pusht's own `reset_to_state` has it the other way round and begins elsewhere.
        """
        self._env._setup()
        x, y, block_x, block_y, angle = state.tolist()
        self._env.agent.position = (x, y)
        self._env.block.angle = angle
        self._env.block.position = (block_x, block_y)
        self._env.space.step(self._env.dt)  # the demonstrations were recorded after this step, too
        return self._observe(self._env.get_obs())

    def step(self, action: Float32[np.ndarray, "2"], observe: bool = True) -> Outcome:
        """Push the disc towards a position for a tenth of a second."""
        state, score, success, _, _ = self._env.step(action.astype(np.float64))
        return Outcome(self._observe(state) if observe else {}, bool(success), float(score))

    def hold(self) -> Float32[np.ndarray, "2"]:
        """Return the position of the disc, which is the action that keeps it there."""
        return np.array(self._env.agent.position, np.float32)

    def _observe(self, state: np.ndarray) -> dict[str, np.ndarray]:
        observation = {STATE: state.astype(np.float32)}
        for camera in self._cameras:
            observation[IMAGES + camera] = self._env._render()
        return observation

    def render(self, size: int) -> UInt8[np.ndarray, "size size 3"]:
        """Return the picture in any size, for videos."""
        return self._env._get_img(self._env._draw(), size, size)

    def foresee(self, actions: Float32[np.ndarray, "steps 2"]) -> Float[np.ndarray, "points 2"]:
        """Return where the actions would lead the disc, as shares of the picture's width and height."""
        return np.concatenate([self.hold()[None], actions]) / _WINDOW


class PushT(Simulator):
    """Describe the benchmark PushT, which has one task."""

    name = "pusht"
    robot_type = "disc"
    fps = FPS
    action_names = ("x", "y")
    demonstrator = "human"
    protocol = Protocol(
        "pusht",
        max_steps=300,
        success="the block covers more than 95 % of its outline; score: the best coverage / 0.95, at most 1",
        image_size=96,
    )
    main_camera = CAMERA
    tasks = ("pusht",)

    def __init__(self) -> None:
        import_gym_pusht()  # a missing package is told at once

    @property
    def version(self) -> str:
        """Return the version of the package gym-pusht."""
        return f"gym-pusht {importlib.metadata.version('gym-pusht')}"

    def expert(self, task: str, config: ExpertConfig) -> Expert:
        """Raise an error that says where the human demonstrations are."""
        raise SimulatorError(
            f"PushT is demonstrated by people and has no expert to collect from: unpack {DEMONSTRATIONS} "
            "and give its pusht_cchi_v7_replay.zarr to --data"
        )

    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 96) -> PushTEnv:
        """Build the environment, which renders square images of this size."""
        self.check_task(task)
        return PushTEnv(cameras, image_size)

    def conditions(self, task: str, split: Split) -> range:
        """Return the seeds of a split; the demonstrations' seeds are of another generator."""
        return range(2**20) if split == "selection" else range(2**30, 2**30 + 2**20)
