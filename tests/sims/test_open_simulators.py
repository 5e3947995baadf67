"""A simulator that only this file knows, in one class and one line, goes through every stage.

Workers are spawned and have not registered it: they get its class, which they import from here.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from oat.cli import main
from oat.data.episodes import STATE, open_dataset
from oat.data.provenance import read_demonstrator
from oat.errors import UnknownName
from oat.evaluation.config import EvalConfig
from oat.evaluation.protocol import find_protocol, protocol_name
from oat.evaluation.records import RECORDS_FILE, read_records
from oat.experiments.config import ReproduceConfig
from oat.experiments.study.scales import SCALES
from oat.experiments.study.study import Study
from oat.interfaces import Demonstration, Environment, ExpertConfig, Outcome, Simulator, Split
from oat.protocol import Protocol
from oat.robots.trials.run import make_robot
from oat.robots.trials.session import Judge
from oat.sims import SIMULATORS, find_simulator, load_simulator
from oat.sims.config import CollectConfig

SIDES = {"left": -1.0, "right": 1.0}
STEP = 0.1


class Walker:
    """A point on a line; it has succeeded when it is a metre to the task's side."""

    def __init__(self, task: str) -> None:
        self._goal = SIDES[task]
        self._position = 0.0

    def reset(self, condition: int) -> dict[str, np.ndarray]:
        self._position = float(np.random.default_rng(condition).uniform(-0.2, 0.2))
        return self._observe()

    def step(self, action: np.ndarray, observe: bool = True) -> Outcome:
        self._position += STEP * float(np.clip(action[0], -1, 1))
        success = abs(self._position - self._goal) < STEP
        return Outcome(self._observe() if observe else {}, success, float(success))

    def hold(self) -> np.ndarray:
        return np.zeros(2, np.float32)

    def _observe(self) -> dict[str, np.ndarray]:
        return {STATE: np.array([self._position, self._goal, 0], np.float32)}


class Guide:
    """Walks straight to the task's side."""

    def __init__(self, task: str, config: ExpertConfig) -> None:
        self._task, self._noise = task, config.noise

    def demonstrate(self, seed: int) -> Demonstration:
        env = Walker(self._task)
        observation: Mapping[str, np.ndarray] = env.reset(seed)
        random = np.random.default_rng(seed)
        seen: list[np.ndarray] = []
        actions: list[np.ndarray] = []
        success = False
        while not success and len(actions) < Toy.protocol.max_steps:
            action = np.array([SIDES[self._task], 0]) + self._noise * random.normal(size=2)
            seen.append(observation[STATE])
            actions.append(action.astype(np.float32))
            outcome = env.step(actions[-1])
            observation, success = outcome.observation, outcome.success
        return Demonstration(np.stack(actions), {STATE: np.stack(seen)}, success)


class Toy(Simulator):
    """The whole of a new simulator."""

    name = "toy"
    robot_type = "point"
    fps = 10.0
    action_names = ("x", "y")
    demonstrator = "scripted"
    protocol = Protocol("toy", max_steps=20, success="the point is a metre to the task's side", execute=4)
    tasks = tuple(SIDES)
    version = "toy 1"

    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> Walker:
        self.check_task(task)
        return Walker(task)

    def expert(self, task: str, config: ExpertConfig) -> Guide:
        self.check_task(task)
        return Guide(task, config)

    def conditions(self, task: str, split: Split) -> range:
        return range(2**31, 2**31 + 100) if split == "selection" else range(2**32, 2**32 + 100)


@pytest.fixture(autouse=True, params=["the class", "where it is"])
def _registered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIMULATORS, "toy", Toy if request.param == "the class" else f"{__name__}:Toy")


def oat(*words: object) -> None:
    main([str(word) for word in words])


def test_a_simulator_of_a_test_goes_through_every_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, policy, out = tmp_path / "data", tmp_path / "policy", tmp_path / "out"
    oat("collect", "toy", "--tasks", "all", "--episodes", 4, "--noise", 0.1, "--out", data, "--workers", 2)
    episodes = open_dataset(data)
    assert set(episodes.tasks) == set(SIDES)
    assert len(episodes) == 8
    assert (episodes.robot_type, episodes.fps, read_demonstrator(data)) == ("point", 10.0, "scripted")
    capsys.readouterr()
    oat("inspect", data, "--json", "--picture", tmp_path / "picture.png")
    assert json.loads(capsys.readouterr().out)["episodes"] == 8

    oat("fit", "--data", data, "--tokenizer", "bin", "--action-horizon", 8, "--out", tmp_path / "bin")
    words = ["train", "--data", data, "--tokenizer", tmp_path / "bin", "--preset", "tiny", "--steps", 3]
    oat(*words, "--out", policy)
    oat("eval", policy, "--sim", "toy", "--episodes", 2, "--workers", 2, "--batch", 2, "--out", out)
    assert "scripted demonstrations" in capsys.readouterr().out
    records = read_records(out / RECORDS_FILE)
    assert sorted(record.key.task for record in records) == sorted([*SIDES] * 2)
    assert {record.key.protocol for record in records} == {Toy.protocol.hash}
    assert all("toy 1" in record.versions and not record.crashed and record.steps <= 20 for record in records)


def test_other_rooms_know_it_by_its_class() -> None:
    assert isinstance(load_simulator("toy").make("left"), Environment)
    assert find_protocol("toy", execute=2).simulator == "toy"
    assert protocol_name(Toy.protocol.hash) == "toy"
    robot = make_robot("oat.robots.trials.rehearsal:toy")
    assert isinstance(robot, Judge)
    study = Study(SCALES["smoke"], "toy", Path("unused"))
    assert set(study.tasks) <= set(SIDES)
    assert isinstance(study.demonstrations().config, CollectConfig)


def test_help_names_the_simulators_without_importing_them() -> None:
    code = "import sys, oat.cli; print(*(name for name in sys.modules if name.startswith('oat.sims.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["oat.sims.config"]
    shown = subprocess.run(
        [sys.executable, "-c", "from oat.cli import main; main(['collect', '--help'])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert all(name in shown for name in SIMULATORS if name != "toy")


def test_a_mistyped_name_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    for make in (
        lambda: CollectConfig("tooy", ("left",), Path("x")),
        lambda: EvalConfig(Path("p"), "tooy", Path("x")),
        lambda: ReproduceConfig(("table-sim",), sim="tooy"),
        lambda: find_simulator("tooy"),
    ):
        with pytest.raises(UnknownName, match="Did you mean 'toy'"):
            make()
    with pytest.raises(SystemExit) as caught:
        oat("collect", "tooy", "--tasks", "left", "--out", "x")
    assert caught.value.code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "unknown simulator 'tooy'. Did you mean 'toy'" in line
