"""LIBERO: importing asks and writes nothing, all ten tasks really step, and published demonstrations train for them."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from oat.data.episodes import IMAGES, STATE, open_dataset
from oat.data.hdf5_demos import list_demos
from oat.errors import MissingExtra, SimulatorError, UnknownName, UnsupportedVersion
from oat.evaluation.protocol import find_protocol
from oat.interfaces import Environment, Expert, ExpertConfig, Simulator
from oat.nn.width import Width
from oat.policies import DiffusionPolicy
from oat.policies.config import DiffusionConfig
from oat.policies.context import describe_context
from oat.sims import load_simulator
from oat.sims.collect import attempt_seed
from oat.sims.hand import UP, Manner, Pose
from oat.sims.libero import (
    ASSETS_VARIABLE,
    HELD_STEPS,
    Libero,
    LiberoEnv,
    find_assets,
    import_libero,
    read_initial_states,
)
from oat.sims.libero_experts import CLOSING, MEANS, NARROW, SPOTS, category
from oat.sims.libero_grasps import Scene
from oat.sims.replay import Replay
from oat.sims.skills import approach, pull
from oat.tokenizers.space import ActionSpace
from tests.sims.robomimic_files import final_states
from tests.test_cli import oat

TASKS = (
    "put both the alphabet soup and the tomato sauce in the basket",
    "put both the cream cheese box and the butter in the basket",
    "turn on the stove and put the moka pot on it",
    "put the black bowl in the bottom drawer of the cabinet and close it",
    "put the white mug on the left plate and put the yellow and white mug on the right plate",
    "pick up the book and place it in the back compartment of the caddy",
    "put the white mug on the plate and put the chocolate pudding to the right of the plate",
    "put both the alphabet soup and the cream cheese box in the basket",
    "put both moka pots on the stove",
    "put the yellow and white mug in the microwave and close it",
)
BOOK, STOVE, DRAWER = TASKS[5], TASKS[2], TASKS[3]
PUBLISHED = {
    "ee_ori": (3,),
    "ee_pos": (3,),
    "ee_states": (6,),
    "gripper_states": (2,),
    "joint_states": (7,),
    "agentview_rgb": (128, 128, 3),
    "eye_in_hand_rgb": (128, 128, 3),
}
"""What `obs` of the published files holds."""
CAMERAS = ("agentview", "eye_in_hand")

needs_assets = pytest.mark.skipif(ASSETS_VARIABLE not in os.environ, reason=f"{ASSETS_VARIABLE} is not set")


@lru_cache(maxsize=1)
def environment(task: str, *cameras: str) -> LiberoEnv:
    return Libero().make(task, cameras)


def random_actions(count: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (count, 7)).astype(np.float32)


def test_importing_asks_nothing_says_nothing_and_leaves_the_home_alone(tmp_path: Path) -> None:
    program = (
        "import os; from oat.sims.libero import Libero; print(len(Libero().tasks), 'LIBERO_CONFIG_PATH' in os.environ)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("10 False\n", "")
    assert not (tmp_path / ".libero").exists()


def test_is_a_simulator_whose_tasks_are_instructions() -> None:
    simulator = load_simulator("libero")
    assert isinstance(simulator, Simulator)
    assert simulator.tasks == TASKS
    assert len(simulator.action_names) == 7
    assert find_protocol("libero").max_steps == 600
    with pytest.raises(UnknownName, match="Did you mean 'put both moka pots on the stove'"):
        simulator.make("put both moka pots on a stove")


def test_the_fixed_states_are_divided() -> None:
    simulator = Libero()
    selection, reporting = (simulator.conditions(BOOK, split) for split in ("selection", "reporting"))
    assert sorted([*selection, *reporting]) == list(range(50))
    assert (len(selection), len(reporting)) == (10, 40)


@needs_assets
def test_the_expert_puts_the_book_into_the_caddy() -> None:
    """From a start that is none of the fixed ones; it repeats from the same seed, and the goal holds at the end."""
    expert = Libero().expert(BOOK, ExpertConfig())
    assert isinstance(expert, Expert)
    shown = expert.demonstrate(attempt_seed(0, BOOK, 0))
    assert shown.success
    steps = len(shown.actions)
    assert shown.actions.shape == (steps, 7)
    assert np.abs(shown.actions).max() <= 1
    assert shown.observations[STATE].shape == (steps, 65)
    env = environment(BOOK)
    first = env.draw(attempt_seed(0, BOOK, 0))
    np.testing.assert_array_equal(first[STATE], shown.observations[STATE][0])
    outcomes = [env.step(action, observe=False).success for action in shown.actions]
    assert outcomes[-HELD_STEPS - 1 :] == [False] + [True] * HELD_STEPS


@needs_assets
@pytest.mark.parametrize("seed", [0, 1])
def test_a_drawer_is_pulled_open_by_its_handle(seed: int) -> None:
    """The cabinet's top drawer, which is shut when the task begins; LIBERO's own predicate says when it is open."""
    env = environment(DRAWER)
    env.reset(seed)
    scene = Scene(env.env, Manner.draw(seed))
    opened = ["open", "white_cabinet_1_top_region"]
    handle = env.env.sim.model.geom_name2id("white_cabinet_1_g18")
    rotation = scene.hand.facing(np.array([0.0, 1.0, -0.3]), UP)

    def target() -> Pose:
        return Pose(np.array(env.env.sim.data.geom_xpos[handle]), rotation)

    assert not scene.holds(opened)
    toward_robot = np.array([0.0, -0.2, 0.0])
    for action in chain(
        approach(scene.hand, target), pull(scene.hand, target, toward_robot, lambda: scene.holds(opened))
    ):
        env.step(action.astype(np.float32), observe=False)
    assert scene.holds(opened)


def test_every_goal_of_every_task_has_means() -> None:
    """What the tasks' definitions ask for, an expert knows how to do, so that none fails for want of an entry."""
    folder = Path(str(import_libero().__file__)).parent / "bddl_files/libero_10"
    from libero.libero.envs.bddl_utils import robosuite_parse_problem  # only now it asks nothing

    goals = [goal for file in folder.glob("*.bddl") for goal in robosuite_parse_problem(str(file))["goal_state"]]
    assert len(goals) == 20
    for name, *arguments in goals:
        assert name in MEANS
        if name in ("in", "on"):
            assert category(arguments[1]) in {**SPOTS, **NARROW}
        if name == "close":
            assert category(arguments[0]) in CLOSING


def test_missing_assets_are_told_and_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path / "elsewhere"))
    with pytest.raises(SimulatorError, match=r"not at .*elsewhere: fetch them with `hf download lerobot/libero-assets"):
        Libero().make(BOOK)
    monkeypatch.delenv(ASSETS_VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SimulatorError, match=r"not at .*package/assets or .*\.cache/libero/assets"):
        find_assets(tmp_path / "package")
    assert not any(tmp_path.iterdir())
    (tmp_path / ".cache/libero/assets/scenes").mkdir(parents=True)
    assert find_assets(tmp_path / "package") == tmp_path / ".cache/libero/assets"


@needs_assets
@pytest.mark.parametrize(
    "part",
    ["desk_caddy.xml", "desk_caddy_texture.png", "visual/desk_caddy_vis.msh"],
    ids=lambda part: Path(part).suffix,
)
def test_a_download_that_was_cut_short_is_told(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether LIBERO or MuJoCo does not find a file, its name and the command are one line."""
    assets = tmp_path / "assets"
    shutil.copytree(os.environ[ASSETS_VARIABLE], assets)
    missing = assets / "turbosquid_objects/desk_caddy" / part
    missing.unlink()
    monkeypatch.setenv(ASSETS_VARIABLE, str(assets))
    with pytest.raises(SimulatorError, match=rf"^LIBERO's assets lack {missing}: fetch them with `hf download .*`$"):
        Libero().make(BOOK)


def test_versions_say_where_assets_are_stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole download is not mentioned, as in records of before."""
    (tmp_path / "assets/scenes").mkdir(parents=True)
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path / "assets"))
    whole = Libero().version
    assert re.fullmatch(r"praxis-libero [\d.post]+, robosuite [\d.]+", whole)
    (tmp_path / "README.md").write_text("# Assets\n\n## Stand-ins\n")
    assert Libero().version == f"{whole}, stand-in meshes and textures"


def test_a_missing_package_tells_both_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra,
        match=r"tokenization\[libero\]' && pip install --no-deps praxis-robosuite",
    ):
        import_libero()


def test_initial_states_are_arrays_and_nothing_else(tmp_path: Path) -> None:
    import torch

    torch.save({"states": Path("anything")}, tmp_path / "states.pruned_init")
    with pytest.raises(Exception, match="Weights only load failed"):
        read_initial_states(tmp_path / "states.pruned_init")


@needs_assets
@pytest.mark.parametrize("task", TASKS)
def test_steps_and_repeats_exactly(task: str) -> None:
    """A reset takes far less than a build and begins anew, whatever went before."""
    begin = time.process_time()
    env = Libero().make(task)
    build = time.process_time() - begin
    assert isinstance(env, Environment)
    actions, episodes, resets = random_actions(6), [], []
    for condition in (3, 4, 3):
        begin = time.process_time()
        observation = env.reset(condition)
        resets.append(time.process_time() - begin)
        outcomes = [env.step(action) for action in actions]
        assert not any(outcome.success for outcome in outcomes)
        episodes.append([observation, *(outcome.observation for outcome in outcomes)])
    assert min(resets) < build / 3
    for first, third in zip(episodes[0], episodes[2], strict=True):
        for key, value in first.items():
            np.testing.assert_array_equal(value, third[key])
    assert np.abs(episodes[0][0][STATE] - episodes[1][0][STATE]).max() > 1e-3
    assert episodes[0][0][STATE].shape == (65,)
    for name, shape in PUBLISHED.items():
        if len(shape) == 1:
            assert episodes[0][0][f"observation.{name}"].shape == shape
            assert episodes[0][0][f"observation.{name}"].dtype == np.float32


@needs_assets
def test_begins_at_a_stored_state_and_observes_only_where_asked() -> None:
    env, actions = environment(BOOK), random_actions(5)
    env.reset(1)
    start = env.simulator_state
    for action in actions:
        outcome = env.step(action, observe=False)
        assert not outcome.observation
    unseen = env.observe()
    env.reset(1)
    np.testing.assert_array_equal(env.simulator_state, start)
    for action in actions:
        seen = env.step(action).observation
    for key, value in seen.items():
        np.testing.assert_array_equal(value, unseen[key])
    file = Path(str(import_libero().__file__)).parent / "init_files/libero_10" / Libero()._tasks[BOOK].init_states_file
    state = read_initial_states(file)[7]
    env.reset_to(state)
    np.testing.assert_array_equal(env.simulator_state, state)


@needs_assets
def test_steps_are_robosuites_own_bit_for_bit() -> None:
    ours, own = final_states(environment(BOOK), 2, random_actions(200))
    np.testing.assert_array_equal(ours, own)


@needs_assets
@pytest.mark.parametrize("begin", [LiberoEnv.reset, LiberoEnv.draw], ids=["fixed state", "drawn"])
def test_objects_have_settled_before_the_first_observation(begin: Callable[[LiberoEnv, int], Any]) -> None:
    """Where things come to rest is what is seen first: nothing moves any more while the robot holds still."""
    env = environment(BOOK)
    first = begin(env, 0)[STATE]
    for _ in range(20):
        later = env.step(env.hold()).observation[STATE]
    assert np.abs(later[9:] - first[9:]).max() < 0.001  # without settling it is 0.05: things begin above the table


@needs_assets
def test_demonstrations_begin_as_differently_as_the_fixed_states() -> None:
    """The hand, too: policies that have seen it begin in one place alone miss the book from any other."""
    env = environment(BOOK)
    drawn, fixed = (np.stack([begin(number)[STATE] for number in range(12)]).std(0) for begin in (env.draw, env.reset))
    assert fixed[:3].min() > 0.005  # metres
    np.testing.assert_allclose(drawn[:3], fixed[:3], atol=0.008)


@needs_assets
def test_images_are_those_of_the_published_demonstrations() -> None:
    """They are upside down: the dark background, behind the table, is at the bottom."""
    env = environment(STOVE, *CAMERAS)
    seen = env.reset(0)
    for camera in CAMERAS:
        assert seen[IMAGES + camera].shape == (128, 128, 3)
        assert seen[IMAGES + camera].dtype == np.uint8
    assert seen[IMAGES + "agentview"][:60].mean() > 1.5 * seen[IMAGES + "agentview"][-40:].mean()
    with pytest.raises(UnknownName, match="agentview"):
        Libero().make(STOVE, ("agent-view",))


def write_demonstrations(
    path: Path, env: LiberoEnv, task: str, lengths: tuple[int, ...]
) -> list[dict[str, np.ndarray]]:
    """Random actions, as a file in the published layout; what was seen is returned, too."""
    live = []
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["problem_info"] = json.dumps({"problem_name": "libero", "language_instruction": task})
        data.attrs["env_args"] = json.dumps({"type": 1, "env_name": "Libero", "env_kwargs": {"control_freq": 20}})
        for number, length in enumerate(lengths):
            seen: list[Mapping[str, np.ndarray]] = [env.reset(number)]
            actions, states = random_actions(length), [env.simulator_state]
            for action in actions:
                seen.append(env.step(action).observation)
                states.append(env.simulator_state)
            demo = data.create_group(f"demo_{number}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # robosuite does not close the file that it makes
                demo.attrs["model_file"] = env.env.sim.model.get_xml()
            demo["actions"], demo["states"] = actions.astype(np.float64), np.stack(states[:-1])
            live.append({key: np.stack([frame[key] for frame in seen[:-1]]) for key in seen[0]})
            for name in PUBLISHED:
                key = f"observation.{name}" if "rgb" not in name else IMAGES + name.removesuffix("_rgb")
                demo[f"obs/{name}"] = live[-1][key]
    return live


@needs_assets
def test_stored_states_show_what_was_seen(tmp_path: Path) -> None:
    """With the furniture where it stood, which XML tells to six digits: `oat convert --render` adds objects' poses."""
    live = write_demonstrations(tmp_path / "demo.hdf5", environment(STOVE, *CAMERAS), STOVE, (3, 4))
    shown = Replay(list_demos(tmp_path / "demo.hdf5"), CAMERAS, 128).observe(1)
    assert shown.keys() == live[1].keys()
    for key, values in shown.items():
        difference = np.abs(values.astype(np.float64) - live[1][key])
        assert difference.mean() < 0.1 if key.startswith(IMAGES) else difference.max() < 1e-5
    env = environment(STOVE, *CAMERAS)
    with pytest.raises(SimulatorError, match="of another task: it has no flat_stove_1"):
        env.reset_to(env.simulator_state, "<mujoco/>")


def test_a_file_whose_actions_mean_something_else_is_refused(tmp_path: Path) -> None:
    """Before anything is built: without assets, too."""
    with h5py.File(tmp_path / "demo.hdf5", "w") as file:
        data = file.create_group("data")
        data.attrs["problem_info"] = json.dumps({"language_instruction": STOVE})
        data.attrs["env_args"] = json.dumps({"env_version": "1.6.0", "env_kwargs": {"robots": ["Panda"]}})
    with pytest.raises(UnsupportedVersion, match=r"demo.hdf5: its environment \(robosuite 1.6.0\) cannot be built"):
        Libero.environment_of(tmp_path / "demo.hdf5")


@needs_assets
def test_one_command_collects_a_task(tmp_path: Path) -> None:
    done = oat("collect", "libero", "--tasks", BOOK, "--episodes", "2", "--workers", "1", "--out", tmp_path / "demos")
    assert done.returncode == 0, done.stderr
    collected = open_dataset(tmp_path / "demos")
    assert collected.tasks == (BOOK,)
    assert len(collected) == 2
    assert collected.observation(STATE).shape[1:] == (65,)
    assert collected.actions.shape[1:] == (7,)


@needs_assets
@pytest.mark.timeout(600)  # an episode has 600 steps
def test_a_policy_for_published_files_acts(tmp_path: Path) -> None:
    env = environment(STOVE, *CAMERAS)
    write_demonstrations(tmp_path / "demo.hdf5", env, STOVE, (8, 6))
    episodes, seen = open_dataset(tmp_path / "demo.hdf5"), env.reset(0)
    assert episodes.tasks == (STOVE,)
    assert {key: values.shape[1:] for key, values in episodes.observations.items()} == {
        key: value.shape for key, value in seen.items() if key != STATE
    }
    context = describe_context(episodes, ("observation.ee_states", "observation.gripper_states"))
    DiffusionPolicy(context, ActionSpace(16, 7), DiffusionConfig(Width(32, 16), 1)).save(tmp_path / "policy")
    options = ("--sim", "libero", "--episodes", "1", "--workers", "1", "--denoising-steps", "2")
    done = oat("eval", tmp_path / "policy", *options, "--out", tmp_path / "records")
    assert done.returncode == 0, done.stderr
    (record,) = [json.loads(line) for line in (tmp_path / "records/records.jsonl").read_text().splitlines()]
    assert record["key"]["task"] == STOVE
    assert record["steps"] == 600
