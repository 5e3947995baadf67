"""Stored starts: a study keeps those of its episodes, publishes them, and takes them before those of the machine."""

import os
from pathlib import Path

import numpy as np
import pytest

from oat.evaluation.config import EvalConfig
from oat.experiments.study.publish import publish
from oat.experiments.study.runs import Run
from oat.experiments.study.starts import with_starts
from oat.sims import STARTS_VARIABLE
from oat.sims.robocasa_conditions import Start, Starts


def draw(number: int) -> None:
    """Meet a condition, for which a machine draws a start if it has none; another machine draws another."""
    starts = Starts("assets", "CloseDrawer")
    state = np.frombuffer(os.environ["OAT_CACHE_DIR"].encode(), np.uint8).astype(np.float64)
    if starts.find(number) is None:
        starts.keep(number, Start({}, "scene", state))


def fingerprint(number: int) -> str:
    found = Starts("assets", "CloseDrawer").find(number)
    assert found is not None
    return found.fingerprint


def test_a_published_study_begins_alike_on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [tmp_path / "one", tmp_path / "other"]
    study, published = tmp_path / "study", tmp_path / "published"
    monkeypatch.setenv("OAT_CACHE_DIR", str(machines[0]))
    draw(0)  # before there was a study
    with_starts(study, draw, 0)
    with_starts(study, draw, 1)
    known = [fingerprint(number) for number in (0, 1)]
    publish(study, published)
    monkeypatch.setenv("OAT_CACHE_DIR", str(machines[1]))
    draw(0)
    assert fingerprint(0) != known[0]
    for number in (0, 1):
        with_starts(published, draw, number)
    monkeypatch.setenv(STARTS_VARIABLE, str(published / "starts"))
    assert [fingerprint(number) for number in (0, 1)] == known


def test_the_variable_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for before in (None, "elsewhere"):
        if before is not None:
            monkeypatch.setenv(STARTS_VARIABLE, before)
        seen: list[str] = []
        with_starts(tmp_path, lambda seen=seen: seen.append(os.environ[STARTS_VARIABLE]))
        assert seen == [str(tmp_path / "starts")]
        assert os.environ.get(STARTS_VARIABLE) == before


def test_runs_of_a_study_take_its_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[str] = []
    monkeypatch.setattr("oat.experiments.study.runs.perform", lambda config: seen.append(os.environ[STARTS_VARIABLE]))
    out = tmp_path / "records" / "dp-seed0"
    Run(tmp_path, "records/dp-seed0", EvalConfig(tmp_path / "policy", "robocasa", out)).perform()
    assert seen == [str(tmp_path / "starts")]
