"""RoboCasa's HDF5 files: as published they are converted and rendered, and what cannot be is told in a line."""

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from oat.cli import main
from oat.data.episodes import IMAGES, STATE, open_dataset
from oat.data.provenance import read_provenance
from oat.errors import SimulatorError, UnknownName, UnsupportedVersion
from oat.sims.hand import Manner
from oat.sims.replay import rerender
from oat.sims.robocasa import PARTS, ROBOT, STATE_KEYS, RoboCasa, RoboCasaEnv
from oat.sims.robocasa_assets import ASSETS_VARIABLE, Assets
from oat.sims.robocasa_experts import EXPERTS
from oat.sims.robocasa_files import check_env_args, place_bodies, read_kitchen
from oat.sims.robomimic import RoboMimic
from oat.sims.robosuite import import_robosuite

TASK, CAMERA, SIZE = "StartCoffeeMachine", "robot0_agentview_left", 64
ELSEWHERE = "/home/someone/robocasa/robocasa/models/assets"

needs_assets = pytest.mark.skipif(ASSETS_VARIABLE not in os.environ, reason=f"{ASSETS_VARIABLE} is not set")


def env_args(**changes: Any) -> dict[str, Any]:
    """As RoboCasa's scripts write them; changes are to `env_kwargs`."""
    options = {
        "robots": ROBOT,
        "layout_ids": None,
        "style_ids": None,
        "obj_registries": ["objaverse"],
        "control_freq": 20,
        "controller_configs": import_robosuite().load_composite_controller_config(robot=ROBOT),
        "camera_heights": 128,
        "use_camera_obs": True,
    }
    return {"env_name": TASK, "env_version": "1.5.1", "type": 1, "env_kwargs": options | changes}


@dataclass(frozen=True)
class Recorded:
    """An episode as files hold it, and what was seen live before every action."""

    actions: np.ndarray
    states: np.ndarray
    seen: Mapping[str, np.ndarray]
    scene: str
    about: str


def record(env: RoboCasaEnv, seed: int, steps: int) -> Recorded:
    """Let the script act in a kitchen that is drawn, for so many steps at most, as on another machine."""
    first = env.draw(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # robosuite does not close the file that it makes
        scene = env.env.sim.model.get_xml()
    about = json.dumps(env.env.get_ep_meta(), default=np.ndarray.tolist)
    here = json.loads(about)["object_cfgs"][0]["info"]["mjcf_path"].partition("/objects/")[0]
    seen, states, actions = [first], [], []
    for wanted in islice(EXPERTS[TASK](env.env, Manner.draw(seed)), steps):
        states.append(env.simulator_state)
        actions.append(wanted.astype(np.float32))
        seen.append(dict(env.step(actions[-1]).observation))
    stacked = {key: np.stack([frame[key] for frame in seen[:-1]]) for key in first}
    return Recorded(
        np.stack(actions), np.stack(states), stacked, scene.replace(here, ELSEWHERE), about.replace(here, ELSEWHERE)
    )


def write_file(path: Path, episodes: list[Recorded], env_args: Mapping[str, Any]) -> Path:
    """Write the published layout."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps(env_args)
        for number, episode in enumerate(episodes, start=1):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["model_file"], demo.attrs["ep_meta"] = episode.scene, episode.about
            demo["actions"], demo["states"] = episode.actions.astype(np.float64), episode.states
            for key in STATE_KEYS:
                demo[f"obs/{key}"] = episode.seen[f"observation.{key}"].astype(np.float64)
            demo[f"obs/{CAMERA}_image"] = episode.seen[IMAGES + CAMERA]
    return path


@pytest.fixture(scope="module")
def episodes() -> list[Recorded]:
    """Two kitchens: in one the button is pressed, in the other the arm has hardly moved."""
    env = RoboCasa().make(TASK, (CAMERA,), SIZE)
    return [record(env, 1, 75), record(env, 2, 4)]


@needs_assets
@pytest.mark.timeout(900)  # kitchens take seconds to build
def test_what_is_converted_and_rendered_is_what_was_seen(episodes: list[Recorded], tmp_path: Path) -> None:
    """With the kitchen where it stood, which XML tells to six digits, and a button that stays pressed."""
    source = write_file(tmp_path / "demo.hdf5", episodes, env_args())
    live = {key: np.concatenate([episode.seen[key] for episode in episodes]) for key in episodes[0].seen}
    main(["convert", str(source), str(tmp_path / "plain")])
    main(["convert", str(source), str(tmp_path / "set"), "--render", CAMERA, "--image-size", str(SIZE)])
    plain, rendered = open_dataset(tmp_path / "plain"), open_dataset(tmp_path / "set")
    for converted in (plain, rendered):
        assert converted.tasks == (RoboCasa.__new__(RoboCasa).instruction(TASK),)
        assert converted.fps == 20
        assert converted.cameras == (IMAGES + CAMERA,)
        np.testing.assert_array_equal(converted.actions, np.concatenate([e.actions for e in episodes]))
    assert STATE not in plain.observations
    assert rendered.observations.keys() == live.keys()
    for key, values in live.items():
        if key in plain.observations:
            np.testing.assert_array_equal(plain.observation(key)[plain.all_frames()], values)
        difference = np.abs(rendered.observation(key)[rendered.all_frames()].astype(np.float64) - values)
        if key.startswith(IMAGES):
            assert difference.mean() < 0.1
        elif key == STATE:
            assert difference[:, :-1].max() < 1e-5
            assert difference[:, -1].sum() <= 1  # a touch within a step is noticed at its end
            assert values[:, -1].any()
        else:
            assert difference.max() < 1e-5
    assert "rendered in robocasa 1.0.0, robosuite 1.5.2, " in read_provenance(tmp_path / "set")[0]["converted_from"]


@needs_assets
@pytest.mark.timeout(900)
def test_a_kitchen_that_cannot_be_built_is_told(episodes: list[Recorded], tmp_path: Path) -> None:
    """In one line, with the demonstration and what to do."""
    about = json.loads(episodes[1].about)
    for number, (change, told) in enumerate(
        (
            ({"layout_id": 7}, r"demo_1: it needs kitchen layout 7 \(there: .*`python -m oat.sims.robocasa_assets`"),
            ({"object_cfgs": []}, r"demo_1: it was given in other kitchens .* only in one of them"),
        )
    ):
        changed = replace(episodes[1], about=json.dumps(about | change))
        source = write_file(tmp_path / f"{number}.hdf5", [changed], env_args())
        with pytest.raises(SimulatorError, match=told) as refused:
            rerender(open_dataset(source), source, (), SIZE)
        assert "\n" not in str(refused.value)


def kitchen_assets(folder: Path) -> Assets:
    for kind in ("layout", "style"):
        (folder / f"scenes/kitchen_{kind}s/test").mkdir(parents=True)
        (folder / f"scenes/kitchen_{kind}s/test/{kind}001.yaml").touch()
    (folder / "objects/objaverse/mug/mug_1").mkdir(parents=True)
    (folder / "objects/objaverse/mug/mug_1/model.xml").touch()
    return Assets(folder)


def described(mug: str = f"{ELSEWHERE}/objects/objaverse/mug/mug_1/model.xml", **changes: Any) -> str:
    return json.dumps({"layout_id": 1, "style_id": 1, "object_cfgs": [{"info": {"mjcf_path": mug}}], **changes})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (described(style_id=12), r"needs kitchen style 12 \(there: 1\).* lack: fetch them with `python -m .*folder"),
        (described(layout_id={"room": {}}), "needs kitchen layout"),
        (described(mug=f"{ELSEWHERE}/objects/objaverse/mug/mug_2/model.xml"), r"needs objects/objaverse/mug/mug_2/mod"),
        (described(mug="/etc/model.xml"), "which RoboCasa's assets at .* lack"),
        (described(mug="/x/objects/../../scenes/kitchen_styles/test/style001.yaml"), "lack"),
        (described(gen_textures={"cab_tex": "a.png"}), "generated textures"),
        ("{}", "ep_meta does not describe a kitchen"),
        ("[1]", "ep_meta does not describe a kitchen"),
        ("no", "ep_meta does not describe a kitchen"),
    ],
)
def test_descriptions_of_kitchens_are_checked(text: str, told: str, tmp_path: Path) -> None:
    assets = kitchen_assets(tmp_path)
    assert read_kitchen(described(), assets)["style_id"] == 1
    with pytest.raises(SimulatorError, match=told):
        read_kitchen(text, assets)


def test_a_scene_puts_bodies_where_they_stood_and_must_have_the_same() -> None:
    import mujoco

    box = '<body name="{}" pos="{}" quat="2 0 0 0"><geom name="g" type="box" size="{}"/></body>'
    scene = "<mujoco><worldbody>{}</worldbody></mujoco>"
    model = mujoco.MjModel.from_xml_string(scene.format(box.format("shelf", "0 0 0", "1 1 1")))
    place_bodies(model, scene.format(box.format("shelf", "0.5 0 1", "1 1 1")))
    np.testing.assert_array_equal(model.body("shelf").pos, [0.5, 0, 1])
    np.testing.assert_array_equal(model.body("shelf").quat, [1, 0, 0, 0])
    for other, told in (
        (scene.format(box.format("hood", "0 0 0", "1 1 1")), "hood and 1 more parts"),
        (scene.format(box.format("shelf", "0 0 0", "1 2 1")), "g measures 1 2 1 there"),
        ("<mujoco", "not XML"),
    ):
        with pytest.raises(SimulatorError, match=told):
            place_bodies(model, other)


def test_files_of_other_generations_or_controllers_are_refused() -> None:
    assert check_env_args(env_args(robots=["PandaMobile"]), ROBOT, PARTS, "file") == TASK
    assert check_env_args(env_args(controller_configs=None), ROBOT, PARTS, "file") == TASK
    slow = import_robosuite().load_composite_controller_config(robot=ROBOT)
    slow["body_parts"]["right"]["kp"] = 20
    for changes, told in (
        ({"robots": "GR1"}, "for one PandaOmron, not for GR1"),
        ({"control_freq": 10}, "actions are 10 a second, not 20"),
        ({"controller_configs": {"type": "OSC_POSE"}}, "not a HYBRID_MOBILE_BASE one"),
        ({"controller_configs": slow}, r"right\.kp of its controller is 20, not 150"),
    ):
        with pytest.raises(UnsupportedVersion, match=told):
            check_env_args(env_args(**changes), ROBOT, PARTS, "file")
    for version in ("1.4.1", "2.0.0"):
        with pytest.raises(
            UnsupportedVersion, match=f"demo.hdf5: recorded in robosuite {version}, .* without --render"
        ):
            check_env_args(env_args() | {"env_version": version}, ROBOT, PARTS, "demo.hdf5")
    with pytest.raises(UnknownName, match=r"robocasa task 'OpenDrawer'\. Did you mean 'CloseDrawer'"):
        check_env_args(env_args() | {"env_name": "OpenDrawer"}, ROBOT, PARTS, "file")
    other = {"env_args": env_args() | {"env_name": "OpenDrawer"}}
    assert RoboCasa.recognizes(other)
    assert not RoboMimic.recognizes(other)
