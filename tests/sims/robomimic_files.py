"""Environments of RoboMimic, built once per process, and files as robomimic writes them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from oat.data.episodes import STATE
from oat.sims.robomimic import ENVIRONMENTS, RoboMimic, RoboMimicEnv
from oat.sims.robosuite import RobosuiteEnv
from oat.sims.stepping import PlainStepper, Stepper

CAMERA, SIZE = "agentview", 32
ROBOT = tuple(f"observation.robot0_{name}" for name in ("eef_pos", "eef_quat", "gripper_qpos"))
OSC_POSE = {
    "type": "OSC_POSE",
    "input_max": 1,
    "input_min": -1,
    "output_max": [0.05, 0.05, 0.05, 0.5, 0.5, 0.5],
    "output_min": [-0.05, -0.05, -0.05, -0.5, -0.5, -0.5],
    "kp": 150,
    "damping": 1,
    "impedance_mode": "fixed",
    "kp_limits": [0, 300],
    "damping_limits": [0, 10],
    "position_limits": None,
    "orientation_limits": None,
    "uncouple_pos_ori": True,
    "control_delta": True,
    "interpolation": None,
    "ramp_ratio": 0.2,
}


def env_args(task: str = "lift", **changes: Any) -> dict[str, Any]:
    """As in the published files of robosuite 1.2; changes are to `env_kwargs`."""
    options = {
        "has_renderer": False,
        "has_offscreen_renderer": False,
        "ignore_done": True,
        "use_object_obs": True,
        "use_camera_obs": False,
        "control_freq": 20,
        "controller_configs": OSC_POSE,
        "robots": ["Panda"],
        "camera_depths": False,
        "camera_heights": 84,
        "camera_widths": 84,
        "reward_shaping": False,
    }
    return {"env_name": ENVIRONMENTS[task], "type": 1, "env_kwargs": options | changes}


@lru_cache
def environment(task: str, *cameras: str) -> RoboMimicEnv:
    """Tests may share it: a reset leaves nothing of what went before."""
    return RoboMimic().make(task, cameras, SIZE)


@dataclass(frozen=True)
class Played:
    """An episode: observation and state t are before action t, the last ones after the last action."""

    actions: np.ndarray
    observations: Sequence[Mapping[str, np.ndarray]]
    states: np.ndarray
    scene: str


def play(env: RoboMimicEnv, condition: int, actions: np.ndarray) -> Played:
    observations, states = [env.reset(condition)], [env.simulator_state]
    for action in actions:
        observations.append(dict(env.step(action).observation))
        states.append(env.simulator_state)
    return Played(actions, observations, np.stack(states), env.env.model.get_xml())


def final_states(env: RobosuiteEnv, condition: int, actions: np.ndarray) -> list[np.ndarray]:
    """Where the actions lead with our steps, and with robosuite's own."""
    found = []
    for stepper in (Stepper, PlainStepper):
        env.stepper = stepper
        env.reset(condition)
        for action in actions:
            env.step(action, observe=False)
        found.append(env.simulator_state)
    env.stepper = Stepper
    return found


def random_actions(steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, 7)).astype(np.float32)


def write_file(path: Path, episodes: Sequence[Played], env_args: Mapping[str, Any]) -> Path:
    """robomimic's layout, with its keys in double precision."""
    objects = 10 if env_args["env_name"] == "Lift" else 14
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps(env_args)
        for number, episode in enumerate(episodes):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["model_file"] = episode.scene
            demo["actions"], demo["states"] = episode.actions.astype(np.float64), episode.states[:-1]
            observed = {key: np.stack([frame[key] for frame in episode.observations[:-1]]) for key in ROBOT}
            demo["obs/object"] = np.stack([frame[STATE][9:] for frame in episode.observations[:-1]])[:, :objects]
            for key, values in observed.items():
                demo[f"obs/{key.removeprefix('observation.')}"] = values.astype(np.float64)
    return path
