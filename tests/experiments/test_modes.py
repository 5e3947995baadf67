"""figure-modes at scale smoke: all methods act, and the paths of their episodes are measured once."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oat.errors import InvalidOption, SimulatorError
from oat.experiments import modes, paths
from oat.experiments.config import ReproduceConfig
from oat.experiments.reproduce import reproduce
from oat.experiments.study.budget import StepBudget
from oat.experiments.study.methods import BC, OAT
from oat.experiments.study.scales import SCALES
from oat.experiments.study.study import EvaluationRun, Study
from oat.tables.files import load_tables
from oat.tables.table import Table

LABELS = ["BC", "DP", "Bin", "FAST", "QueST", "OAT×_8", "OAT_1", "OAT_2", "OAT_4", "OAT_8"]
WAYS = ("left, %", "right, %", "obstacle, %", "neither, %")


def study_in(out: Path) -> Study:
    return Study(SCALES["smoke"], "detour", out / "smoke" / "detour")


def read_table(out: Path) -> Table:
    (table,) = load_tables(study_in(out).folder / "tables" / "figure-modes.json")
    return table


def shares(table: Table, label: str) -> Sequence[str]:
    (row,) = (row for row in table.rows if row[0] == label)
    return row[-len(WAYS) :]


def test_every_method_acts_and_its_ways_are_told(detour_study: Path) -> None:
    table = read_table(detour_study)
    assert [row[0] for row in table.rows] == LABELS
    assert table.columns[-len(WAYS) :] == WAYS
    for label in LABELS:
        assert sum(map(float, shares(table, label))) == 100
    assert sum(note.startswith("claim: ") and "acts better than BC" in note for note in table.notes) == 6
    assert any(note.startswith("demonstrations: ") for note in table.notes)
    assert not any("not measured" in note or "not run" in note for note in table.notes)
    assert (study_in(detour_study).folder / "figures" / "figure-modes.png").read_bytes().startswith(b"\x89PNG")


def test_paths_belong_to_the_records(detour_study: Path) -> None:
    study = study_in(detour_study)
    evaluation = EvaluationRun(OAT)
    found = paths.read_paths(study, evaluation)
    records = [record for group in study.records(evaluation).values() for record in group]
    assert found.keys() == {record.key.file_name for record in records}
    assert all(len(found[record.key.file_name]) == record.steps + 1 for record in records)
    begun = {record.key.condition: found[record.key.file_name][0].tolist() for record in records}
    assert len(set(map(tuple, begun.values()))) == 2  # two conditions, whatever the number of tokens
    assert len(paths.read_demonstrated_paths(study)) == SCALES["smoke"].demonstrations


def test_paths_are_measured_once(detour_study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(paths, "_run_again", refuse)
    modes.measure(study_in(detour_study))


def test_an_episode_that_does_not_repeat_has_no_path(detour_study: Path) -> None:
    (record, *_) = study_in(detour_study).records(EvaluationRun(BC))[None]
    with pytest.raises(SimulatorError, match="did not repeat as recorded, so there is no path of it"):
        paths._check_repeats(record, replace(record, steps=record.steps - 1))


def test_chunks_are_executed_in_the_plane(detour_study: Path) -> None:
    """Another figure, which draws the hand's path in two of its directions: here there are no more."""
    reproduce(ReproduceConfig(("figure-coarse-to-fine",), "smoke", "detour", out=detour_study, jobs=1))
    (table,) = load_tables(study_in(detour_study).folder / "tables" / "figure-coarse-to-fine.json")
    assert any(note.startswith("executed: the chunks of 1 of the episodes") for note in table.notes)


def test_published_it_is_printed_and_drawn_again(detour_study: Path, tmp_path: Path) -> None:
    again = ReproduceConfig(("figure-modes",), "smoke", "detour", out=detour_study, only_tables=True, publish=tmp_path)
    reproduce(again)
    picture = study_in(tmp_path).folder / "figures" / "figure-modes.png"
    picture.unlink()
    reproduce(replace(again, out=tmp_path, publish=None))
    assert read_table(tmp_path) == read_table(detour_study)
    assert picture.exists()


def test_without_runs_everything_is_said_to_be_missing(tmp_path: Path) -> None:
    reproduce(ReproduceConfig(("figure-modes",), "smoke", "detour", out=tmp_path, only_tables=True))
    table = read_table(tmp_path)
    assert set(shares(table, "BC")) == {"—"}
    assert any(note == f"not run: {', '.join(LABELS)}" for note in table.notes)


def test_other_simulators_are_refused() -> None:
    with pytest.raises(InvalidOption, match="figure-modes means nothing in metaworld: add --sim detour"):
        ReproduceConfig(("figure-modes",))


def test_a_toy_has_minutes_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "pace.json").write_text('{"policies/oat": 0.1, "tokenizers/oat": 0.1}')
    toy, usual = (StepBudget(Study(SCALES["cpu"], sim, tmp_path)) for sim in ("detour", "metaworld"))
    assert (toy.tokenizer_steps(OAT), toy.policy_steps(OAT)) == (400, 800)
    assert (usual.tokenizer_steps(OAT), usual.policy_steps(OAT)) == (2400, 4800)


def test_rows_without_episodes_have_no_shares() -> None:
    assert modes._shares([]) == ["—"] * 4
    assert modes._shares([np.array([[0, -1], [-0.8, 0.5]], np.float32)]) == ["100", "0", "0", "0"]
