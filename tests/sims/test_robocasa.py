"""RoboCasa: a user is told what is missing, equal conditions start equal, and steps are the benchmark's own."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from oat.cli import main
from oat.data.episodes import IMAGES, STATE, open_dataset
from oat.data.provenance import read_provenance
from oat.errors import InvalidActions, InvalidOption, MissingExtra, SimulatorError, UnknownName
from oat.evaluation.records import read_records
from oat.interfaces import Environment, Expert, ExpertConfig, Simulator
from oat.nn.width import Width
from oat.policies import DiffusionPolicy
from oat.policies.config import DiffusionConfig
from oat.policies.context import describe_context
from oat.sims import load_simulator
from oat.sims.collect import attempt_seed, collect_demonstrations
from oat.sims.config import CollectConfig
from oat.sims.robocasa import CAMERAS, HELD_STEPS, INSTRUCTIONS, STATE_KEYS, RoboCasa, RoboCasaEnv
from oat.sims.robocasa_assets import ASSETS_VARIABLE, Assets, find_assets, import_robocasa
from oat.sims.robocasa_conditions import Start, Starts
from oat.sims.robocasa_tasks import KitchenTask
from oat.sims.robosuite import import_robosuite
from oat.tokenizers.space import ActionSpace
from tests.sims.robomimic_files import final_states

TASKS = ("CloseDrawer", "StartCoffeeMachine", "TurnOffMicrowave", "TurnOffSinkFaucet")
ROBOT_DIM = 16

needs_assets = pytest.mark.skipif(ASSETS_VARIABLE not in os.environ, reason=f"{ASSETS_VARIABLE} is not set")


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the conditions of this module's environments are kept."""
    return tmp_path_factory.mktemp("starts")


@lru_cache(maxsize=1)
def build(task: str, cache: Path) -> RoboCasaEnv:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OAT_CACHE_DIR", str(cache))
        return RoboCasa().make(task, CAMERAS, 64)


def random_actions(count: int) -> np.ndarray:
    """Motions of the arm, and of the base for a while."""
    actions = np.random.default_rng(0).uniform(-1, 1, (count, 12)).astype(np.float32)
    actions[:, 11] = -1
    actions[count // 3 : count // 2, 11] = 1
    return actions


def test_is_a_simulator_with_twelve_numbers_per_action() -> None:
    simulator = RoboCasa.__new__(RoboCasa)
    assert isinstance(simulator, Simulator)
    assert simulator.tasks == TASKS == tuple(INSTRUCTIONS)
    assert len(simulator.action_names) == 12
    assert simulator.protocol.max_steps == 300  # the most that RoboCasa allows for one of its four tasks
    selection, reporting = (simulator.conditions("CloseDrawer", split) for split in ("selection", "reporting"))
    assert not set(selection[:100]) & set(reporting[:100])
    assert max(selection[-1], reporting[-1]) < 2**31  # from there on are demonstrations
    assert simulator.instruction("TurnOffSinkFaucet") == "Turn off the sink faucet."


def test_without_the_package_a_user_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import_robosuite()  # only RoboCasa is missing
    import_robocasa.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"tokenization\[robocasa\]' && pip install --no-deps praxis-robosuite"):
        import_robocasa()


def test_missing_and_partial_assets_name_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path))
    with pytest.raises(SimulatorError, match=r"no arenas, fixtures, .* with `python -m oat\.sims\.robocasa_assets`"):
        find_assets()
    for part in ("arenas", "fixtures", "objects", "scenes"):
        (tmp_path / part).mkdir()
    with pytest.raises(SimulatorError, match=r"\(no textures\).*OAT_ROBOCASA_ASSETS name the folder"):
        find_assets()
    (tmp_path / "textures").mkdir()
    with pytest.raises(SimulatorError, match=r"no objects/…/model\.xml"):
        find_assets()


def test_kitchens_that_are_not_there_are_told(tmp_path: Path) -> None:
    for kind in ("layout", "style"):
        (tmp_path / f"scenes/kitchen_{kind}s/test").mkdir(parents=True)
        (tmp_path / f"scenes/kitchen_{kind}s/test/{kind}001.yaml").touch()
    assets = Assets(tmp_path)
    assert assets.scenes() == [(1, 1)]
    assert assets.name == "full kitchens"
    (tmp_path / "PROVENANCE.json").write_text('{"sink.xml": "stand-in"}')
    assert Assets(tmp_path).name == "stand-in kitchen"
    for number in (2, 3, 5):
        (tmp_path / f"scenes/kitchen_styles/test/style{number:03d}.yaml").touch()
    with pytest.raises(
        UnknownName, match=r"unknown kitchen layout 7\. .* has 1: take one of these, or fetch all with `python -m"
    ):
        assets.scenes(layouts=[7])
    with pytest.raises(UnknownName, match=r"unknown kitchen style 12\. .* has 1-3, 5: take"):
        assets.scenes(styles=[12])
    assert KitchenTask("CloseDrawer", style=2).scenes(assets) == [(1, 2)]


def test_a_name_may_choose_the_kitchen() -> None:
    assert KitchenTask.parse("CloseDrawer") == KitchenTask("CloseDrawer")
    assert KitchenTask.parse("CloseDrawer@layout=1,style=20") == KitchenTask("CloseDrawer", 1, 20)
    assert KitchenTask.parse("CloseDrawer@layout=3") == KitchenTask("CloseDrawer", layout=3)
    assert KitchenTask.parse("CloseDrawer@style=3") == KitchenTask("CloseDrawer", style=3)
    for wrong in (
        "",
        "layout=",
        "layout=x",
        "style=1,layout=1",
        "layout=1 style=2",
        "layout=01",
        "layout=1,",
        ",style=2",
    ):
        with pytest.raises(InvalidOption, match="write CloseDrawer@layout=NUMBER,style=NUMBER, or one of the two"):
            KitchenTask.parse(f"CloseDrawer@{wrong}")
    assert RoboCasa.__new__(RoboCasa).instruction("TurnOffMicrowave@layout=1") == INSTRUCTIONS["TurnOffMicrowave"]
    with pytest.raises(UnknownName, match="Did you mean 'CloseDrawer'"):
        RoboCasa.__new__(RoboCasa).check_task("CloseDrawers@layout=1")


@needs_assets
@pytest.mark.timeout(900)
def test_a_kitchen_is_chosen_on_the_command_line_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that the assets lack is told before anything is built."""
    monkeypatch.setenv("OAT_CACHE_DIR", str(tmp_path / "cache"))
    task, out = "StartCoffeeMachine@layout=1,style=1", tmp_path / "set"
    main(["collect", "robocasa", "--tasks", task, "--episodes", "1", "--workers", "1", "--out", str(out)])
    assert open_dataset(out).tasks == (INSTRUCTIONS["StartCoffeeMachine"],)
    assert read_provenance(out)[0]["tasks"] == {task: {"episodes": 1, "attempts": 1}}
    context = describe_context(open_dataset(out), (STATE,))
    DiffusionPolicy(context, ActionSpace(16, 12), DiffusionConfig(Width(32, 16), 1)).save(tmp_path / "policy")
    options = ["--sim", "robocasa", "--episodes", "1", "--workers", "1", "--denoising-steps", "2"]
    evaluate = ["eval", str(tmp_path / "policy"), *options, "--out", str(tmp_path / "records"), "--tasks"]
    main([*evaluate, task])
    (record,) = read_records(tmp_path / "records/records.jsonl")
    assert record.key.task == task
    kept = Starts(find_assets().digest, task).find(record.key.condition)
    assert kept is not None
    assert record.start == kept.fingerprint
    for unknown in ("StartCoffeeMachine@style=99", "StartCoffeeMachine@layout=99"):
        with pytest.raises(UnknownName, match=r"unknown kitchen (style|layout) 99\. .* has "):
            collect_demonstrations(CollectConfig("robocasa", (unknown,), tmp_path / "none"))
        with pytest.raises(SystemExit):
            main([*evaluate, unknown])
        assert "unknown kitchen" in capsys.readouterr().err


@needs_assets
def test_importing_says_nothing_and_leaves_numpy_its_version() -> None:
    program = (
        "from oat.sims import load_simulator; print(load_simulator('robocasa').version); import numpy; "
        "assert numpy.__version__ != '2.2.5'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("robocasa 1.0.0, robosuite 1.5.2, ")
    assert done.stderr == ""


def _asset_files() -> dict[Path, tuple[int, int]]:
    """Return the size and the time of every file of the user's assets."""
    files = ((each, each.stat()) for each in find_assets().folder.rglob("*"))
    return {each: (status.st_size, status.st_mtime_ns) for each, status in files}


@needs_assets
@pytest.mark.timeout(900)  # kitchens take seconds to build
@pytest.mark.parametrize("task", TASKS)
def test_equal_conditions_start_and_go_on_equal(task: str, starts: Path) -> None:
    """Whatever went before; another condition is another kitchen."""
    env, actions, before = build(task, starts), random_actions(4), _asset_files()
    assert isinstance(env, Environment)
    unlike = env.observe()[STATE]  # of the kitchen that it was built in
    episodes = []
    for _ in range(2):
        first = env.reset(3)
        outcomes = [env.step(action) for action in actions]
        assert not any(outcome.success for outcome in outcomes)
        episodes.append([first, *(outcome.observation for outcome in outcomes)])
    for one, two in zip(*episodes, strict=True):
        for key, value in one.items():
            np.testing.assert_array_equal(value, two[key])
    start = episodes[0][0]
    assert np.abs(start[STATE] - unlike).max() > 1e-3
    assert start[STATE].shape == (ROBOT_DIM + 8,)
    robot = np.concatenate([start[f"observation.{key}"] for key in STATE_KEYS])
    np.testing.assert_array_equal(robot, start[STATE][:ROBOT_DIM])
    for camera in CAMERAS:
        assert start[IMAGES + camera].shape == (64, 64, 3)
        assert start[IMAGES + camera].std() > 5
    assert _asset_files() == before  # nothing is written beside or into the user's assets


def test_starts_that_differ_have_other_fingerprints() -> None:
    one = Start({"layout_id": 1, "style_id": 2}, "scene", np.zeros(3))
    assert one.fingerprint == Start({"style_id": 2, "layout_id": 1}, "scene", np.zeros(3)).fingerprint
    for other in (
        replace(one, kitchen={"layout_id": 1, "style_id": 3}),
        replace(one, scene="other"),
        replace(one, state=np.array([0, 0, 1e-12])),
    ):
        assert other.fingerprint != one.fingerprint


@needs_assets
def test_another_process_starts_at_the_same_stored_state(starts: Path) -> None:
    env = build("TurnOffSinkFaucet", starts)
    seen = env.reset(3)[STATE]
    program = (
        "import sys; from oat.sims.robocasa import RoboCasa; import numpy as np; "
        "print(RoboCasa().make('TurnOffSinkFaucet').reset(3)['observation.state'].tobytes().hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "OAT_CACHE_DIR": str(starts), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == seen.tobytes().hex(), done.stderr


@needs_assets
@pytest.mark.timeout(900)  # 400 steps of 30 ms and three kitchens, on a machine that others use, too
def test_steps_are_robosuites_own_bit_for_bit(starts: Path) -> None:
    ours, own = final_states(build("TurnOffSinkFaucet", starts), 3, random_actions(200))
    np.testing.assert_array_equal(ours, own)


@needs_assets
def test_bad_input_is_told(starts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = build("TurnOffSinkFaucet", starts)
    with pytest.raises(InvalidActions, match="actions are 12 finite numbers"):
        env.step(np.zeros(7, np.float32))
    with pytest.raises(UnknownName, match="Did you mean 'CloseDrawer'"):
        load_simulator("robocasa").make("close-drawer")
    monkeypatch.setenv("OAT_CACHE_DIR", str(tmp_path))
    broken = Starts("assets", "CloseDrawer")
    broken.path(1).parent.mkdir(parents=True)
    broken.path(1).write_bytes(b"no")
    with pytest.raises(SimulatorError, match=r"1\.npz does not hold an initial condition .*: remove it"):
        broken.find(1)


@needs_assets
@pytest.mark.parametrize("part", ["textures/marble/marble.png", "fixtures/sinks"])
def test_a_kitchen_without_a_texture_or_a_model_names_the_command(part: str, tmp_path: Path) -> None:
    """A download that was cut short is noticed when the missing file is asked for."""
    shutil.copytree(find_assets().folder, tmp_path / "assets")
    (tmp_path / "assets" / part).rename(tmp_path / "elsewhere")
    program = "from oat.sims.robocasa import RoboCasa; RoboCasa().make('TurnOffSinkFaucet')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, ASSETS_VARIABLE: str(tmp_path / "assets")},
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"oat.errors.SimulatorError: RoboCasa's assets lack {part}")
    assert told.endswith("fetch them with `python -m oat.sims.robocasa_assets`")


@needs_assets
def test_a_texture_that_only_another_kitchen_needs_is_told_by_a_reset(starts: Path, tmp_path: Path) -> None:
    """Every kitchen has other files: that of a demonstration, and that of a condition, drawn or rebuilt."""
    env = build("TurnOffSinkFaucet", starts)
    env.reset(3)
    texture = Path(import_module("robocasa.models").assets_root) / "textures/marble/marble.png"
    texture.rename(tmp_path / "away")
    try:
        for begin, number in ((env.draw, 0), (env.reset, 4), (env.reset, 3)):
            with pytest.raises(SimulatorError, match=r"RoboCasa's assets lack textures/marble/marble\.png: fetch them"):
                begin(number)
    finally:
        (tmp_path / "away").rename(texture)
    env.reset(3)


@needs_assets
def test_the_expert_starts_the_coffee_machine() -> None:
    """Success, which RoboCasa grants when the hand has left the button, holds until the demonstration ends."""
    expert = RoboCasa().expert("StartCoffeeMachine", ExpertConfig())
    assert isinstance(expert, Expert)
    shown = expert.demonstrate(attempt_seed(0, "StartCoffeeMachine", 0))
    assert shown.success
    steps = len(shown.actions)
    assert shown.actions.shape == (steps, 12)
    assert np.abs(shown.actions).max() <= 1
    assert (shown.actions[:, 7:] == [0, 0, 0, 0, -1]).all()  # neither base nor torso moves
    on = shown.observations[STATE][:, -1]
    assert on[0] == 0
    assert on[-HELD_STEPS:].all()
