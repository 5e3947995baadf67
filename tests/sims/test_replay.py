"""Files of robomimic build their very environment, or are refused, and their states can be rendered again."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest

from oat.cli import main
from oat.data.episodes import IMAGES, STATE, open_dataset
from oat.errors import InvalidEpisode, InvalidOption, MissingKey, UnknownName, UnsupportedVersion
from oat.sims.env_args import check_usual_arm, translate_env_args
from oat.sims.replay import rerender
from oat.sims.robomimic import RoboMimic
from tests.sims.robomimic_files import CAMERA, OSC_POSE, SIZE, env_args, environment, play, random_actions, write_file


def composite(arm: Mapping[str, Any] = OSC_POSE, kind: str = "BASIC", **parts: Any) -> dict[str, Any]:
    """A controller as robosuite 1.5 has them."""
    return {"type": kind, "body_parts": {"right": {**arm, "gripper": {"type": "GRIP"}}, **parts}}


def without_delta(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in OSC_POSE.items() if key != "control_delta"} | changes


def test_a_file_builds_the_very_environment(tmp_path: Path) -> None:
    """An episode that was recorded elsewhere goes the same way; a softer arm would not."""
    live = play(environment("lift"), 1, random_actions(4))
    for kp, same in ((150, True), (60, False)):
        path = tmp_path / f"{kp}.hdf5"
        env = RoboMimic.environment_of(write_file(path, [live], env_args(controller_configs=OSC_POSE | {"kp": kp})))
        env.reset_to(live.states[0])
        for action in live.actions:
            env.step(action)
        assert np.array_equal(env.simulator_state, live.states[-1]) == same


@pytest.mark.parametrize(
    ("changes", "frame", "light"),
    [
        ({}, "world", False),
        ({"robots": "Panda", "horizon": 500, "render_gpu_device_id": 0, "mount_types": "default"}, "world", False),
        ({"controller_configs": composite(), "lite_physics": False}, "base", False),
        ({"controller_configs": composite(base={"type": "JOINT_VELOCITY"})}, "base", True),
        ({"controller_configs": {"type": "BASIC", "body_parts": {"arms": composite()["body_parts"]}}}, "base", True),
        ({"controller_configs": composite(without_delta(input_type="delta", input_ref_frame="world"))}, "world", True),
        (
            {"controller_configs": composite(OSC_POSE | {"goal_update_mode": "achieved"}), "base_types": "default"},
            "base",
            True,
        ),
    ],
)
def test_what_means_the_same_is_translated(changes: dict[str, Any], frame: str, light: bool) -> None:
    """From up to 1.4, which has no light physics and moves in the world, and from 1.5."""
    name, options = translate_env_args(env_args("square", **changes), "file")
    assert name == "NutAssemblySquare"
    renamed = {"damping": "damping_ratio", "damping_limits": "damping_ratio_limits"}
    arm = {renamed.get(key, key): value for key, value in without_delta().items()}
    arm |= {"input_type": "delta", "input_ref_frame": frame, "gripper": {"type": "GRIP"}}
    assert options.pop("controller_configs") == {"type": "BASIC", "body_parts": {"right": arm}}
    assert options.pop("robots") in ("Panda", ["Panda"])
    assert options == {"control_freq": 20, "reward_shaping": False, "use_object_obs": True, "lite_physics": light}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"controller_configs": OSC_POSE | {"damping": 2}}, "damping = 2 was used by some versions and ignored"),
        ({"controller_configs": OSC_POSE | {"stiffness": 2}}, "OSC_POSE has no option stiffness"),
        ({"controller_configs": OSC_POSE | {"type": "OSC_YAW"}}, "controller 'OSC_YAW' is none of"),
        ({"controller_configs": "BASIC"}, "must describe one controller"),
        (
            {"controller_configs": composite(kind="WHOLE_BODY_IK")},
            "WHOLE_BODY_IK controller of right is not that of one",
        ),
        ({"controller_configs": {"type": "BASIC", "body_parts": {"legs": {}}}}, "of legs is not that of one arm"),
        ({"robots": ["Panda", "Panda"]}, "one Panda, not for"),
        ({"controller_configs": composite(without_delta(input_type="absolute"))}, "actions are poses to go to"),
        ({"controller_configs": composite(OSC_POSE | {"control_delta": False})}, "actions are poses to go to"),
        ({"controller_configs": OSC_POSE | {"control_delta": False}}, "actions are poses to go to"),
        ({"controller_configs": composite(OSC_POSE | {"input_ref_frame": "hand"})}, "in the frame of the hand"),
        ({"controller_configs": composite(OSC_POSE | {"goal_update_mode": "desired"})}, "add to the last goal"),
        ({"table_legs": 3}, "it has no option table_legs"),
    ],
)
def test_what_may_mean_something_else_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedVersion, match=reason) as refused:
        translate_env_args({**env_args(**changes), "env_version": "1.5.1"}, "low_dim.hdf5")
    assert "low_dim.hdf5: its environment (robosuite 1.5.1) cannot be built in robosuite 1.5" in str(refused.value)
    assert str(refused.value).endswith("; `oat convert` without --render takes over what the file holds")


@pytest.mark.parametrize("version", ["1.0.1", "1.6.0", "2.0", "1.20"])
def test_other_generations_are_refused(version: str) -> None:
    given = {**env_args(), "env_version": version}
    with pytest.raises(UnsupportedVersion, match=rf"robosuite {version}\) cannot be .*: files of robosuite 1\.2"):
        translate_env_args(given, "file")
    with pytest.raises(UnsupportedVersion, match=r"files of robosuite 1\.2 to 1\.5"):
        check_usual_arm(given, 20, "file")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"controller_configs": OSC_POSE | {"kp": 60}}, "kp of its controller is 60, not 150"),
        ({"controller_configs": OSC_POSE | {"control_delta": False}}, "actions are poses to go to"),
        ({"controller_configs": composite()}, "input_ref_frame of its controller is base, not world"),
        ({"control_freq": 10}, "its actions are 10 a second, not 20"),
        ({"robots": ["Sawyer"]}, "one Panda, not for"),
    ],
)
def test_a_usual_arm_is_told_from_others(changes: dict[str, Any], reason: str) -> None:
    for version in ({}, {"env_version": "1.4.0"}):
        check_usual_arm({**env_args(), **version}, 20, "file")
    check_usual_arm({"env_name": "Libero"}, 20, "file")
    with pytest.raises(UnsupportedVersion, match=reason):
        check_usual_arm(env_args(**changes), 20, "file")


def test_other_environments_are_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="not a robosuite environment"):
        translate_env_args({**env_args(), "type": 2}, "file")
    with pytest.raises(UnsupportedVersion, match="lacks env_name or env_kwargs"):
        translate_env_args({"env_name": "Lift"}, "file")
    with pytest.raises(UnknownName, match=r"environment of RoboMimic 'Lifts'\. Did you mean 'Lift'"):
        translate_env_args({**env_args(), "env_name": "Lifts"}, "file")


def test_rendered_again_is_as_seen_live(tmp_path: Path) -> None:
    """Through the command line, for some of the episodes, into a data set with lossless images."""
    env = environment("can", CAMERA, "robot0_eye_in_hand")
    episodes = [play(env, condition, random_actions(3 + condition)) for condition in range(3)]
    source = write_file(tmp_path / "demo.hdf5", episodes, env_args("can"))
    out, size = str(tmp_path / "set"), str(SIZE)
    main(["convert", str(source), out, "--episodes", "1:", "--render", CAMERA, "--image-size", size])
    converted = open_dataset(out)
    assert converted.cameras == (IMAGES + CAMERA,)
    live = [frame for episode in episodes[1:] for frame in episode.observations[:-1]]
    for key in (STATE, IMAGES + CAMERA):
        seen = converted.observation(key)[converted.all_frames()]
        np.testing.assert_array_equal(seen, np.stack([frame[key] for frame in live]))


def test_every_demonstration_has_its_own_scene(tmp_path: Path) -> None:
    """robosuite draws the size of Lift's cube when it builds the scene; files store it."""
    env = environment("lift", CAMERA)
    live = play(env, 0, random_actions(2))
    scene = ElementTree.fromstring(live.scene)
    next(geom for geom in scene.iter("geom") if geom.get("name") == "cube_g0").set("size", "0.04 0.04 0.04")
    other_scene = ElementTree.tostring(scene, "unicode")
    source = write_file(tmp_path / "demo.hdf5", [live, replace(live, scene=other_scene)], env_args("lift"))
    again = rerender(open_dataset(source), source, (CAMERA,), SIZE)
    own, other = (again.observation(IMAGES + CAMERA)[again.frames(number)] for number in (0, 1))
    np.testing.assert_array_equal(own[0], live.observations[0][IMAGES + CAMERA])
    assert np.abs(own.astype(int) - other).max() > 20


def test_what_cannot_be_rendered_is_told(tmp_path: Path) -> None:
    live = play(environment("lift"), 0, random_actions(2))
    stateless, nameless = (write_file(tmp_path / f"{n}.hdf5", [live], env_args("lift")) for n in range(2))
    with h5py.File(stateless, "a") as file:
        del file["data/demo_0/states"]
    with pytest.raises(InvalidEpisode, match="2 actions need as many simulator states, found none"):
        rerender(open_dataset(stateless), stateless, (CAMERA,), SIZE)
    with h5py.File(nameless, "a") as file:
        del file["data"].attrs["env_args"]
    with pytest.raises(MissingKey, match="no attribute 'env_args'"):
        rerender(open_dataset(nameless), nameless, (CAMERA,), SIZE)
    with pytest.raises(InvalidOption, match="holds no simulator states"):
        rerender(open_dataset(stateless), tmp_path / "set.npz", (CAMERA,), SIZE)
