"""table-overall: what table-sim measured in several benchmarks, side by side and pooled over their tasks."""

import re
import shutil
from pathlib import Path

import pytest

from oat.cli import main
from oat.sims import load_simulator
from oat.tables.files import load_tables
from oat.tables.interval import NOT_AVAILABLE
from oat.tables.table import Table


def _copy(study: Path, out: Path, sim: str) -> Path:
    """Copy the records of MetaWorld's box-close, as if they were of a benchmark's first task; return their folder."""
    folder = out / "smoke" / sim
    for kind in ("done", "records"):
        shutil.copytree(study / "smoke" / "metaworld" / kind, folder / kind)
    for file in folder.glob("records/*/records.jsonl"):
        file.write_text(file.read_text().replace('"box-close"', f'"{_first_task(sim)}"'))
    return folder


def _first_task(sim: str) -> str:
    simulator = load_simulator(sim)
    return (simulator.study_tasks or simulator.tasks)[0]


def _overall(out: Path) -> Table:
    main(["reproduce", "table-overall", "--scale", "smoke", "--only-tables", "--out", str(out)])
    (table,) = load_tables(out / "smoke" / "metaworld" / "tables" / "table-overall.json")
    return table


def test_what_was_run_in_all_benchmarks_is_pooled(smoke_study: Path, tmp_path: Path) -> None:
    shutil.copytree(smoke_study / "smoke" / "metaworld" / "done", tmp_path / "smoke" / "metaworld" / "done")
    shutil.copytree(smoke_study / "smoke" / "metaworld" / "records", tmp_path / "smoke" / "metaworld" / "records")
    shutil.rmtree(_copy(smoke_study, tmp_path, "robomimic") / "records" / "dp-seed0")
    table = _overall(tmp_path)
    assert table.columns[:4] == ("policy", "robomimic", "metaworld", "overall")
    rows = {row[0]: row[1:4] for row in table.rows}
    assert NOT_AVAILABLE not in rows["OAT_8"]
    assert [cell == NOT_AVAILABLE for cell in rows["DP"]] == [True, False, True]
    notes = "\n".join(table.notes)
    assert "1 task of robomimic, 1 task of metaworld" in notes
    assert "not run: libero, robocasa, robomimic: DP" in notes


def test_single_steps_of_a_benchmark_join_the_papers(smoke_study: Path, tmp_path: Path) -> None:
    """They are pooled, have no number of the paper's, and are not missed where they were not run."""
    for sim in ("robomimic", "libero_90"):
        _copy(smoke_study, tmp_path, sim)
    table = _overall(tmp_path)
    assert table.columns[:4] == ("policy", "robomimic", "libero_90", "overall")
    rows = {row[0]: row[1:4] for row in table.rows}
    assert NOT_AVAILABLE not in rows["OAT_8"]
    notes = "\n".join(table.notes)
    assert "1 task of robomimic, 1 task of libero_90" in notes
    assert "not run: libero, metaworld, robocasa" in notes
    assert "paper: the mean over its tasks of robomimic\n" in notes


def test_without_any_records_all_cells_are_empty(tmp_path: Path) -> None:
    table = _overall(tmp_path)
    assert table.columns == ("policy", "overall", "95 %")
    assert {cell for row in table.rows for cell in row[1:]} == {NOT_AVAILABLE}


@pytest.mark.parametrize(("outcomes", "overall"), [((True, False), "50.0"), ((True, True), "100.0")])
def test_tasks_count_alike(smoke_study: Path, tmp_path: Path, outcomes: tuple[bool, bool], overall: str) -> None:
    for sim, success in zip(("robomimic", "robocasa"), outcomes, strict=True):
        for file in _copy(smoke_study, tmp_path, sim).glob("records/*/records.jsonl"):
            text = file.read_text().replace('"success": true', '"success": false')
            file.write_text(text.replace('"success": false', f'"success": {str(success).lower()}'))
    rows = {row[0]: row for row in _overall(tmp_path).rows}
    assert rows["OAT_8"][3] == overall


def test_stand_ins_for_assets_are_told_by_benchmark(smoke_study: Path, tmp_path: Path) -> None:
    for sim, told in (("robomimic", ""), ("robocasa", ", stand-in kitchen")):
        for file in _copy(smoke_study, tmp_path, sim).glob("records/*/records.jsonl"):
            file.write_text(re.sub(r'("versions": "[^"]*)"', rf'\1{told}"', file.read_text()))
    assert "assets: stand-in kitchen of robocasa" in _overall(tmp_path).notes
