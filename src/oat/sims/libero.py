"""Adapt LIBERO's ten long tasks, libero_10, with a Panda arm (PyPI praxis-libero; https://arxiv.org/abs/2306.03310).

Its other suites differ in their tasks and limits alone, and are classes of their own: oat.sims.libero_90 and
oat.sims.libero_variations.

A task is its instruction, an initial condition one of the benchmark's 50 fixed states for it. Observations of the robot
have the keys of the published demonstrations, and so have images, which are upside down there; `observation.state` adds
the poses of all objects. Actions are 7 numbers in [-1, 1], 20 times a second: the hand's motion (of 5 cm), its turn
about x, y, z (of 0.5 rad) and the gripper (-1 opens, 1 closes).

The meshes and textures are not part of the package: OAT_LIBERO_ASSETS says where they are. Nothing is downloaded, and
LIBERO's own settings in the user's home are neither read nor written.
"""

import importlib.metadata
import importlib.util
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, ClassVar
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Float64

from oat.data.episodes import IMAGES, STATE
from oat.data.hdf5_demos import read_attributes, task_name
from oat.errors import MissingExtra, SimulatorError
from oat.interfaces import Expert, ExpertConfig, Simulator, Split
from oat.io.extras import DISTRIBUTION, import_extra
from oat.protocol import Protocol
from oat.sims.assets import STAND_IN, explain_missing_files, has_stand_ins
from oat.sims.env_args import check_usual_arm
from oat.sims.libero_experts import check_means, demonstrate
from oat.sims.robosuite import BUILD_OPTIONS, RobosuiteEnv, arm_controller, import_robosuite
from oat.sims.scripted import ScriptedExpert, step_limit

ASSETS_VARIABLE = "OAT_LIBERO_ASSETS"
CONFIG_VARIABLE = "LIBERO_CONFIG_PATH"
INSTALL_COMMAND = (
    f"pip install '{DISTRIBUTION}[libero]' && "
    "pip install --no-deps praxis-robosuite==1.5.2.post1 praxis-libero==0.1.1.post1"
)
DOWNLOAD_COMMAND = "hf download lerobot/libero-assets --repo-type dataset --local-dir ~/.cache/libero/assets"
DEMONSTRATIONS = "hf download yifengzhu-hf/LIBERO-datasets --repo-type dataset --include 'libero_10/*' --local-dir DATA"

_CAMERAS = {"eye_in_hand": "robot0_eye_in_hand"}  # as the demonstrations call it: as the scene does
_SENSORS = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "robot0_joint_pos")
_STATE_DIM = 65  # end effector and gripper 9, eight objects with 7 each; zeros where there are fewer
HELD_STEPS = 5  # a demonstration ends when success has held for so long
_SETTLING_STEPS = 5  # objects come to rest before LIBERO's own evaluation begins, too


def import_libero() -> ModuleType:
    """Import LIBERO's package without the question that it asks when it finds no settings.

    The settings say where its files are, which this adapter does not need: an empty file is enough for the import.
    """
    import_robosuite()
    if importlib.util.find_spec("libero") is None:
        raise MissingExtra(f"LIBERO is not installed: {INSTALL_COMMAND}")
    before = os.environ.get(CONFIG_VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.yaml").touch()
        os.environ[CONFIG_VARIABLE] = folder
        try:
            libero = import_extra("libero.libero", "libero")
        finally:
            del os.environ[CONFIG_VARIABLE]
            if before is not None:
                os.environ[CONFIG_VARIABLE] = before
    vars(libero)["config_file"] = str(Path(before or "~/.libero").expanduser() / "config.yaml")  # for other code
    return libero


def _package(libero: ModuleType) -> Path:
    """Return the folder of LIBERO's package."""
    return Path(str(libero.__file__)).parent


def find_assets(package: Path) -> Path:
    """Return the folder of meshes and textures: the one that is named, else where LIBERO looks itself."""
    named = os.environ.get(ASSETS_VARIABLE)
    usual = (package / "assets", Path("~/.cache/libero/assets").expanduser())
    places = (Path(named).expanduser(),) if named else usual
    for place in places:
        if (place / "scenes").is_dir():
            return place
    raise SimulatorError(
        f"LIBERO's meshes and textures (a folder with scenes/, …) are not at {' or '.join(map(str, places))}: "
        f"fetch them with `{DOWNLOAD_COMMAND}`, or let {ASSETS_VARIABLE} name the folder that has them"
    )


def read_initial_states(file: Path) -> Float64[np.ndarray, "states numbers"]:
    """Return the fixed states of a task; they are stored as a pickle, of which nothing but an array is accepted."""
    import _codecs

    import torch
    from numpy._core.multiarray import _reconstruct

    parts = (np.ndarray, np.dtype, np.dtypes.Float64DType, _codecs.encode)
    with torch.serialization.safe_globals([(_reconstruct, "numpy.core.multiarray._reconstruct"), *parts]):
        return np.asarray(torch.load(file, weights_only=True), np.float64)


class LiberoEnv(RobosuiteEnv):
    """Simulate one task, which begins at one of its fixed states."""

    def __init__(self, task: Any, cameras: tuple[str, ...] = (), image_size: int = 128) -> None:
        """Build the environment of a task, which is a line of LIBERO's own list."""
        libero = import_libero()
        package = _package(libero)
        vars(libero)["_assets_path_cache"] = str(find_assets(package))  # else it would download them
        self._states = read_initial_states(package / "init_files" / task.problem_folder / task.init_states_file)
        self._shown = cameras
        scene_cameras = tuple(dict.fromkeys(_CAMERAS.get(camera, camera) for camera in cameras))
        bddl_file = package / "bddl_files" / task.problem_folder / task.bddl_file
        with explain_missing_files("LIBERO", DOWNLOAD_COMMAND):
            super().__init__(lambda: _build(bddl_file), _SENSORS, scene_cameras, image_size, effects=True)

    def reset(self, condition: int) -> dict[str, np.ndarray]:
        """Begin an episode at a fixed state; it does not say where furniture stands, which is drawn within 2 cm."""
        super().reset(condition)
        self.show(self._states[condition])
        self._begin()
        return self._settle()

    def draw(self, seed: int) -> dict[str, np.ndarray]:
        """Begin an episode of a demonstration, where LIBERO's own reset puts things and the arm for a seed."""
        super().reset(seed)
        return self._settle()

    def _settle(self) -> dict[str, np.ndarray]:
        """Let things come to rest, and return what is observed then."""
        for _ in range(_SETTLING_STEPS):
            self._advance(np.zeros(self.env.action_dim))
        return self.observe()

    def _advance(self, action: Float64[np.ndarray, "7"]) -> None:
        """Take an action, and update what remembers, such as a stove that was turned on."""
        super()._advance(action)
        self.env._post_process()

    def _load(self, scene: str) -> None:
        """Put furniture where it stands in a stored scene, whose files are those of another machine."""
        placed = {body.get("name"): body for body in ElementTree.fromstring(scene).iter("body")}
        for fixture in self.env.fixtures:
            if fixture.root_body not in placed:
                raise SimulatorError(f"the stored scene is of another task: it has no {fixture.root_body}")
            body = placed[fixture.root_body]
            number = self.env.sim.model.body_name2id(fixture.root_body)
            self.env.sim.model.body_pos[number] = np.fromstring(body.get("pos", "0 0 0"), sep=" ")
            self.env.sim.model.body_quat[number] = np.fromstring(body.get("quat", "1 0 0 0"), sep=" ")

    def observe(self) -> dict[str, np.ndarray]:
        """Return the observation, with images upside down as in the published demonstrations."""
        self.env._post_process()  # a stove that is on glows
        seen = super().observe()
        images = {IMAGES + camera: seen[IMAGES + _CAMERAS.get(camera, camera)][::-1] for camera in self._shown}
        return {key: value for key, value in seen.items() if not key.startswith(IMAGES)} | images

    def vectors(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the state with all objects, and the robot's parts under the names of the demonstrations."""
        to_axis_angle = import_extra("robosuite.utils.transform_utils", "libero").quat2axisangle
        position = values["robot0_eef_pos"]
        orientation = to_axis_angle(values["robot0_eef_quat"])
        gripper = values["robot0_gripper_qpos"]
        state = np.concatenate([position, values["robot0_eef_quat"], gripper, *self._objects()])
        vectors = {
            STATE: np.pad(state, (0, _STATE_DIM - len(state))),
            "observation.ee_pos": position,
            "observation.ee_ori": orientation,
            "observation.ee_states": np.concatenate([position, orientation]),
            "observation.gripper_states": gripper,
            "observation.joint_states": values["robot0_joint_pos"],
        }
        return {key: value.astype(np.float32) for key, value in vectors.items()}

    def _objects(self) -> list[np.ndarray]:
        """Return position and orientation (x, y, z, w) of everything that is named, and how far furniture is open."""
        data = self.env.sim.data
        poses = [
            np.append(data.body_xpos[body], np.roll(data.body_xquat[body], -1))
            for body in self.env.obj_body_id.values()
        ]
        joints = [data.get_joint_qpos(joint) for fixture in self.env.fixtures for joint in fixture.joints]
        return [*poses, np.array(joints)]


def definition_of(attributes: Mapping[str, Any]) -> PurePosixPath:
    """Return where the definition of a file's task was on the machine that recorded it, as far as the file says."""
    return PurePosixPath(str(attributes.get("bddl_file_name", "")))


def _build(bddl_file: Path) -> Any:
    """Build LIBERO's own environment of a task from the file that defines it."""
    robosuite = import_robosuite()
    envs = import_extra("libero.libero.envs", "libero")
    problem = import_extra("libero.libero.envs.bddl_utils", "libero").get_problem_info(str(bddl_file))["problem_name"]
    return envs.TASK_MAPPING[problem](
        str(bddl_file),
        robots=["Panda"],
        controller_configs=arm_controller(robosuite),
        initialization_noise="default",  # as in the fixed states: else demonstrations would all begin in one pose
        control_freq=20,
        lite_physics=False,
        **BUILD_OPTIONS,
    )


class Libero(Simulator):
    """Describe LIBERO's suite libero_10: ten tasks of several steps each, whose names are their instructions."""

    name = "libero"
    suite: ClassVar[str] = "libero_10"
    """What LIBERO calls the tasks that this class has."""
    robot_type = "panda"
    fps = 20.0
    action_names = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")
    demonstrator = "scripted"
    protocol = Protocol(
        "libero",
        max_steps=step_limit(440, own=600),  # of the mug in the microwave
        success="the first step after which the goal of the task's definition holds",
    )
    main_camera = "agentview"
    hand_position = slice(0, 3)

    @property
    def version(self) -> str:
        """Return the versions of LIBERO's package and of robosuite, and whether some assets are not LIBERO's own."""
        libero = import_libero()
        versions = f"praxis-libero {importlib.metadata.version('praxis-libero')}"
        versions += f", robosuite {import_robosuite().__version__}"
        assets = find_assets(_package(libero))
        return f"{versions}, {STAND_IN} meshes and textures" if has_stand_ins(assets) else versions

    @cached_property
    def _tasks(self) -> dict[str, Any]:
        """Return LIBERO's own list of tasks by name."""
        import_libero()
        listed = import_extra("libero.libero.benchmark", "libero").task_maps[self.suite]
        return {self._name_of(task): task for task in listed.values()}

    @staticmethod
    def _name_of(task: Any) -> str:
        """Return what a task of LIBERO's list is called here."""
        return str(task.language)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return the names of all tasks."""
        return tuple(self._tasks)

    def instruction(self, task: str) -> str:
        """Return LIBERO's words for a task."""
        return str(self._tasks[task].language)

    def expert(self, task: str, config: ExpertConfig) -> Expert:
        """Return the script that demonstrates a task, which is composed from the task's goals."""
        env = self.make(task, config.cameras, config.image_size)
        check_means(task, env.env.parsed_problem["goal_state"])
        return ScriptedExpert(env, env.draw, demonstrate, config.noise, self.protocol.max_steps, HELD_STEPS)

    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> LiberoEnv:
        """Build the environment of a task, which renders through these cameras."""
        self.check_task(task)
        return LiberoEnv(self._tasks[task], cameras, image_size)

    @classmethod
    def recognizes(cls, attributes: Mapping[str, Any]) -> bool:
        """Return whether a file is LIBERO's, which says in `problem_info` what its task is, and of this suite.

        The suite is the folder of the task's definition; of a file that does not name one, libero_10 is tried.
        """
        suite = definition_of(attributes).parent.name
        return "problem_info" in attributes and (suite or Libero.suite) == cls.suite

    @classmethod
    def environment_of(cls, file: Path, cameras: tuple[str, ...] = (), image_size: int = 128) -> LiberoEnv:
        """Return the environment of the task that a file names, if actions do there what they do here."""
        attributes = read_attributes(file)
        env_args = attributes.get("env_args")
        if isinstance(env_args, dict):
            check_usual_arm(env_args, round(cls.fps), str(file))
        return cls().make(cls._task_in(file, attributes), cameras, image_size)

    @classmethod
    def _task_in(cls, file: Path, attributes: Mapping[str, Any]) -> str:
        """Return the name of the task that a file was recorded in."""
        return task_name(file, attributes)

    def conditions(self, task: str, split: Split) -> Sequence[int]:
        """Return the numbers of a task's fixed states: every fifth is for selection."""
        return [number for number in range(50) if (number % 5 == 0) == (split == "selection")]
