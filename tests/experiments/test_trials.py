"""The real-robot table, end to end with a simulated robot: real sockets, a real simulator, nobody at the keyboard."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oat.cli import main
from oat.data.episodes import STATE
from oat.errors import InvalidOption
from oat.experiments.experiment import load_experiment
from oat.experiments.paper.trials import PUBLISHED_TRIALS
from oat.experiments.study.budget import StepBudget
from oat.experiments.study.scales import SCALES
from oat.experiments.study.study import Study
from oat.interfaces import Robot
from oat.io.extras import import_extra
from oat.robots.trials.config import Driving
from oat.robots.trials.log import TrialLog
from oat.robots.trials.plan import TrialPlan
from oat.robots.trials.rehearsal import Rehearsal
from oat.robots.trials.session import Judge, run_trials
from oat.robots.trials.table import trial_tables
from oat.serving.client import Reply
from oat.sims.metaworld import MetaWorld
from oat.tables.files import load_tables
from tests.evaluation.untrained import save_policy

TABLE_REAL = load_experiment("table-real")


MAX_STEPS = 150


@pytest.fixture(autouse=True)
def _short_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetaWorld, "protocol", replace(MetaWorld.protocol, max_steps=MAX_STEPS))


def test_the_table_runs_by_its_name(smoke_study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From demonstrations to print, in worker processes; what is published is enough to print it anew."""
    published = smoke_study / "published"
    arguments = ["reproduce", "table-real", "--scale", "smoke", "--jobs", "2", "--out"]
    main([*arguments, str(smoke_study), "--publish", str(published)])
    shown = capsys.readouterr().out
    assert "trials of a simulated robot" in shown
    main([*arguments, str(published), "--only-tables"])
    assert capsys.readouterr().out == shown
    (table,) = load_tables(published / "smoke" / "metaworld" / "tables" / "table-real.json")
    assert [row[0] for row in table.rows] == ["DP", "OAT_1", "OAT_2", "OAT_4", "OAT_8"]
    assert all(row[1].endswith(" / 2") for row in table.rows)


def test_the_table_is_rehearsed(tmp_path: Path) -> None:
    study = Study(SCALES["smoke"], "metaworld", tmp_path)
    runs = study.runs(TABLE_REAL.evaluations(study), StepBudget(study))
    assert [run.name for run in runs] == ["demos", "policies/dp-seed0", "tokenizers/oat-seed0", "policies/oat-seed0"]
    (empty,) = TABLE_REAL.tables(study)
    assert "not run: DP, OAT_1, OAT_2, OAT_4, OAT_8" in empty.notes
    for kind, slug in (("diffusion", "dp"), ("oat", "oat")):
        save_policy(tmp_path / "policies" / f"{slug}-seed0", kind, tasks=("box-close", "coffee-pull"))
    assert TABLE_REAL.measure is not None
    TABLE_REAL.measure(study)
    (table,) = TABLE_REAL.tables(study)
    assert "a simulated robot" in table.title
    assert [row[:2] for row in table.rows] == [(label, "0 / 2") for label in ("DP", "OAT_1", "OAT_2", "OAT_4", "OAT_8")]
    assert table.rows[-1][-1] == "16 / 20, 16 / 20"
    notes = "\n".join(table.notes)
    assert "scale smoke, preset tiny, metaworld" in notes
    assert "robot oat.robots.trials.rehearsal:metaworld, judged blind by the simulator" in notes
    assert "no real robot was moved" in notes
    assert "more tokens act better: undecided (" in notes
    (path,) = (tmp_path / "trials").iterdir()
    written = path.read_bytes()
    TABLE_REAL.measure(study)
    assert path.read_bytes() == written
    last = TrialLog.read(path).records[-1]
    path.write_bytes(written[:-40])  # as if it had been killed in the last trial
    TABLE_REAL.measure(study)
    log = TrialLog.read(path)
    assert log.remaining == []
    assert replace(log.records[-1], begun=last.begun, seconds=last.seconds, late=last.late) == last


def test_a_real_robot_is_asked_for_at_the_papers_scale(tmp_path: Path) -> None:
    study = Study(SCALES["paper"], "metaworld", tmp_path)
    assert TABLE_REAL.evaluations(study) == []
    assert TABLE_REAL.measure is not None
    TABLE_REAL.measure(study)
    (table,) = TABLE_REAL.tables(study)
    assert "needs a real robot" in table.title
    assert ("OAT_8", "16 / 20, 16 / 20") in table.rows
    assert "oat trials trials.jsonl --methods DP=ws://127.0.0.1:8000 " in table.notes[0]
    assert "OAT_4=ws://127.0.0.1:8004,num_tokens=4" in table.notes[0]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidOption, match="not possible in pusht"):
        TABLE_REAL.evaluations(Study(SCALES["cpu"], "pusht", tmp_path))


class Expert:
    """A method that knows how: MetaWorld's own controller, one action at a time."""

    obs_horizon = 2

    def __init__(self) -> None:
        policies = import_extra("metaworld.policies", "metaworld").ENV_POLICY_MAP
        self._policies: dict[str, Any] = {task: policies[f"{task}-v3"]() for task in ("reach", "drawer-close")}

    def infer(
        self, frames: Mapping[str, np.ndarray], task: str, noise: tuple[int, int], previous: np.ndarray | None = None
    ) -> Reply:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Constant", UserWarning)
            action = self._policies[task].get_action(frames[STATE][-1].astype(np.float64))
        return Reply(np.clip(action, -1, 1).astype(np.float32)[None], 1, 1.0, 1.0)


class Idler:
    """A method that does nothing."""

    obs_horizon = 2

    def infer(
        self, frames: Mapping[str, np.ndarray], task: str, noise: tuple[int, int], previous: np.ndarray | None = None
    ) -> Reply:
        return Reply(np.zeros((1, 4), np.float32), 1, 1.0, 1.0)


def test_a_simulator_judges_what_happens_in_it(tmp_path: Path) -> None:
    robot = Rehearsal("metaworld")
    assert isinstance(robot, Robot)
    assert isinstance(robot, Judge)
    driving = Driving(fps=10_000, execute=1, ahead=0, blend=0, max_age=600, seconds=3600)
    methods: dict[str, int | None] = {"DP": None, "OAT_8": None}
    plan = TrialPlan(methods, ("reach", "drawer-close"), 3, 0, "oat.robots.trials.rehearsal:metaworld", driving)
    log = TrialLog.open(tmp_path / "trials.jsonl", plan)
    run_trials(log, robot, robot, {"DP": Idler(), "OAT_8": Expert()})
    (table,) = trial_tables(TrialLog.read(log.path), PUBLISHED_TRIALS)
    assert [(row[1], row[3], row[5]) for row in table.rows] == [
        ("0 / 3", "0 / 3", "0 / 6"),
        ("3 / 3", "3 / 3", "6 / 6"),
    ]
    assert (
        "claim: OAT_8 acts better than DP: held (OAT_8 − DP = +100.0 points on 6 conditions, p = 0.031)" in table.notes
    )
    idle = [record for record in log.records if plan.method(record.trial) == "DP"]
    assert {record.steps for record in idle} == {MAX_STEPS}
