"""Show MetaWorld's tasks as LeRobot and praxis-eval show them: other observations, other names, the same robot.

The state is 4 numbers, the hand's position and how far the gripper is open, without objects or goal; the image comes
from the camera corner2, moved nearer; tasks are sentences. A policy of one view therefore cannot act in the other.
"""

import importlib.metadata
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import UInt8

from oat.data.episodes import STATE
from oat.errors import InvalidOption, MissingExtra, unknown_name
from oat.protocol import Protocol
from oat.sims.metaworld import MAX_STEPS, MetaWorld, MetaWorldEnv
from oat.sims.rendering import CameraRenderer

IMAGE = "observation.image"
CAMERA = "image"
FULL_SIZE = 480
"""Height and width of the pictures that LeRobot's environment gives."""

_STATE_DIM = 4
_MUJOCO_CAMERA = "corner2"
_CAMERA_POSITION = (0.75, 0.075, 0.7)
_SENTENCES_FILE = "lerobot/envs/metaworld_config.json"


class LeRobotMetaWorldEnv(MetaWorldEnv):
    """Simulate one task, and observe it as LeRobot does: small images are means over pixels of the full picture."""

    def __init__(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 96) -> None:
        for camera in cameras:
            if camera != CAMERA:
                raise unknown_name("camera", camera, [CAMERA])
        if cameras and FULL_SIZE % image_size:
            raise InvalidOption(f"image_size must divide {FULL_SIZE}, such as 96, 120 or 160, got {image_size}")
        super().__init__(task)
        self._image_size = image_size
        self._picture = self._make_renderer() if cameras else None

    def _make_renderer(self) -> CameraRenderer:
        model = self._env.model
        model.camera(_MUJOCO_CAMERA).pos = _CAMERA_POSITION
        if self._image_size < FULL_SIZE:
            # Faster, and after averaging less than half a grey level away from LeRobot's picture.
            model.vis.quality.shadowsize = 1024
            model.vis.quality.offsamples = 0
        return CameraRenderer(model, (_MUJOCO_CAMERA,), FULL_SIZE, effects=True)

    def _observe(self) -> dict[str, np.ndarray]:
        observation = {STATE: self.raw_state[:_STATE_DIM].astype(np.float32)}
        if self._picture is not None:
            observation[IMAGE] = shrink(self._picture.render(self._env.data, _MUJOCO_CAMERA), self._image_size)
        return observation


def shrink(picture: UInt8[np.ndarray, "full full 3"], size: int) -> UInt8[np.ndarray, "size size 3"]:
    """Return a picture whose pixels are means over squares of the given one's."""
    factor = len(picture) // size
    means = picture.reshape(size, factor, size, factor, 3).mean((1, 3), dtype=np.float32)
    return np.rint(means).astype(np.uint8)


class LeRobotMetaWorld(MetaWorld):
    """Describe the benchmark MetaWorld as LeRobot's commands and praxis-eval run it."""

    name = "metaworld-lerobot"
    protocol = Protocol(
        "metaworld-lerobot",
        max_steps=MAX_STEPS,
        success="the first step whose info says success",
        cameras=(CAMERA,),
        image_size=96,
    )
    study_tasks: ClassVar[tuple[str, ...]] = ()
    main_camera = CAMERA

    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 96) -> LeRobotMetaWorldEnv:
        """Build the environment of a task; its one camera is called image."""
        self.check_task(task)
        return LeRobotMetaWorldEnv(task, cameras, image_size)

    def instruction(self, task: str) -> str:
        """Return the sentence that LeRobot has for a task."""
        return self._sentences[f"{task}-v3"]

    @cached_property
    def _sentences(self) -> Mapping[str, str]:
        """Read LeRobot's own list, which is part of its package; nothing of LeRobot is imported."""
        try:
            file: Any = importlib.metadata.distribution("lerobot").locate_file(_SENTENCES_FILE)
        except importlib.metadata.PackageNotFoundError as error:
            raise MissingExtra(
                "the sentences of this view are in LeRobot's package, which is not installed: "
                "pip install --no-deps lerobot==0.4.4"
            ) from error
        sentences: Mapping[str, str] = json.loads(file.read_text(encoding="utf-8"))["TASK_DESCRIPTIONS"]
        return sentences
