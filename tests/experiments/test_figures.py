"""The paper's figures, and its table of latencies, from one small study."""

import math
from pathlib import Path

import pytest

from oat.cli import main
from oat.experiments import coarse_to_fine
from oat.experiments.catalogue import EXPERIMENTS, CatalogueEntry
from oat.experiments.config import ReproduceConfig
from oat.experiments.method_points import read_points
from oat.experiments.reproduce import reproduce
from oat.experiments.study.methods import BIN, OAT, QUEST
from oat.experiments.study.scales import SCALES
from oat.experiments.study.study import Study
from oat.tables.files import load_tables
from oat.tables.table import Table
from tests.report.example_results import write_demonstrations

FIGURES: tuple[str, ...] = (
    "table-latency",
    "figure-teaser",
    "figure-coarse-to-fine",
    "figure-modelability",
    "figure-fast-failure",
)


def draw(out: Path, name: str, only_tables: bool = False) -> list[Table]:
    """What the command makes, read back; its picture is there, too."""
    reproduce(ReproduceConfig((name,), scale="smoke", out=out, jobs=2, only_tables=only_tables))
    folder = out / "smoke" / "metaworld"
    tables = load_tables(folder / "tables" / f"{name}.json")
    for table in tables:
        assert any("commit" in note for note in table.notes)
    assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return tables


def cells(table: Table, column: str) -> dict[str, str]:
    """A column by the row's first cell."""
    place = table.columns.index(column)
    return {row[0]: row[place] for row in table.rows}


def test_latency_is_measured_once_and_kept(smoke_study: Path) -> None:
    (table,) = draw(smoke_study, "table-latency")
    tokens = cells(table, "tokens")
    assert (tokens["DP"], tokens["Bin"], tokens["QueST"], tokens["OAT_4"]) == ("—", "128", "8", "4")
    assert 8 < float(tokens["FAST"]) < 128
    assert cells(table, "/ OAT_8's")["OAT_8"] == "1.00"
    assert float(cells(table, "ms")["Bin"]) > float(cells(table, "ms")["OAT_8"])
    assert cells(table, "paper's ms, A100")["Bin"] == "306.6"
    assert any("the study's demonstrations" in note for note in table.notes)
    assert draw(smoke_study, "table-latency", only_tables=True) == [table]


def test_teaser_measures_what_tokenizers_promise(smoke_study: Path) -> None:
    properties, inference, success = draw(smoke_study, "figure-teaser")
    assert cells(properties, "numbers per token")["Bin"] == "1.0"
    decoded = cells(properties, "P.2 random sequences that decode, %")
    assert float(decoded.pop("FAST")) < 10
    assert set(decoded.values()) == {"100.0"}
    assert cells(properties, "P.3 tokens after the first that lower the mean error")["QueST"] == "no prefix decodes"
    assert set(cells(inference, "after 8")) == {"DP", "OAT"}
    assert (cells(inference, "after 10")["OAT"], len(success.rows)) == ("—", 8)


def test_chunks_are_executed_where_they_were_demonstrated(smoke_study: Path) -> None:
    (table,) = draw(smoke_study, "figure-coarse-to-fine")
    assert list(cells(table, "MSE")) == ["1", "2", "4", "8"]
    assert cells(table, "paper's MSE, one chunk")["4"] == "0.038"
    assert any(note.startswith("executed: the chunks of 1 of the episodes") for note in table.notes)
    assert all(float(off) > 0 for off in cells(table, "hand off at the end, cm").values())


def test_chunks_that_were_not_executed_are_not_said_to_be(tmp_path: Path) -> None:
    study = Study(SCALES["smoke"], "pusht", tmp_path, write_demonstrations(tmp_path / "given"))
    study.tokenizer(OAT, seed=0, steps=20).perform()
    (table,) = coarse_to_fine.tables(study)
    assert [note for note in table.notes if "executed" in note] == [
        "not executed: pusht cannot be brought back to where its demonstrations began"
    ]
    assert set(cells(table, "hand off at the end, cm").values()) == {"—"}
    (claim,) = (note for note in table.notes if note.startswith("claim: "))
    assert claim.startswith("claim: the error falls with K, in one chunk of each episode: undecided (K=8 < K=4 in ")
    assert claim.count(" of 1, p = 1") == 3  # one held-out episode decides nothing


def test_modelability_has_a_point_for_every_method_that_acted(smoke_study: Path) -> None:
    points, lengths = draw(smoke_study, "figure-modelability")
    ordered = ("OAT_1", "OAT_2", "OAT_4", "OAT_8")
    assert list(cells(points, "tokens")) == ["DP", "Bin", "FAST", "QueST", *ordered, "OAT×_8"]
    bits = {label: float(value) for label, value in cells(points, "NLL, bits per chunk").items() if label != "DP"}
    assert 0 < bits["OAT_1"] < bits["OAT_2"] < bits["OAT_4"] < bits["OAT_8"] < bits["Bin"]
    assert sum("n = 8" in note for note in points.notes) == 5  # DP has no tokens, and nothing of FAST decodes
    changed = cells(points, "changed in one step, %")
    assert changed.pop("DP") == "—"
    assert all(0 <= float(share) <= 100 for share in changed.values())
    assert float(changed["Bin"]) > 0
    assert all(float(error) > 0 for label, error in cells(points, "open-loop MSE").items() if label != "FAST")
    assert sum(int(count) for count in cells(lengths, "chunks").values()) == 32
    assert any("undecided" in note for note in lengths.notes)  # one held-out episode decides nothing


def test_stability_is_measured_of_tokenizers_that_are_there(tmp_path: Path) -> None:
    study = Study(SCALES["smoke"], "pusht", tmp_path, write_demonstrations(tmp_path / "given"))
    study.tokenizer(OAT, seed=0, steps=5).perform()
    study.tokenizer(BIN, seed=0, steps=None).perform()
    (binned,) = read_points(study, BIN)
    assert 0 < binned.shifted <= 1
    assert 0 < binned.noised <= 1
    assert [0 <= point.shifted <= 1 for point in read_points(study, OAT)] == [True] * len(OAT.prefixes)
    (absent,) = read_points(study, QUEST)
    assert math.isnan(absent.shifted)


def test_fast_fails_where_oat_cannot(smoke_study: Path) -> None:
    sampled, damaged, episodes = draw(smoke_study, "figure-fast-failure")
    assert len(sampled.rows) == 12
    undecodable = {(row[0], row[1]): float(row[2]) for row in damaged.rows}
    assert all(undecodable["OAT", count] == 0 for count in "01248")
    assert undecodable["FAST", "0"] == 0
    assert undecodable["FAST", "1"] > 40
    assert undecodable["FAST", "8"] > undecodable["FAST", "1"]
    errors = {row[1]: sum(map(float, row[4:])) for row in damaged.rows if row[0] == "FAST"}
    assert errors["0"] < errors["1"] < errors["8"]
    malformed = cells(episodes, "per 500 episodes")
    assert malformed.pop("FAST") == "500"  # after a moment of training, nothing of it decodes
    assert malformed == dict.fromkeys(("OAT_1", "OAT_2", "OAT_4", "OAT_8"), "0")
    assert any("171 of 500 LIBERO-10 episodes" in note for note in episodes.notes)


def test_published_without_models_the_tables_stand(smoke_study: Path, tmp_path: Path) -> None:
    tables = draw(smoke_study, "figure-coarse-to-fine")
    reproduce(ReproduceConfig(("table-sim",), scale="smoke", out=smoke_study, only_tables=True, publish=tmp_path))
    assert draw(tmp_path, "figure-coarse-to-fine", only_tables=True) == tables


@pytest.mark.parametrize("name", FIGURES)
def test_what_was_not_run_is_said(name: str, tmp_path: Path) -> None:
    reproduce(ReproduceConfig((name,), scale="smoke", out=tmp_path, only_tables=True))
    for table in load_tables(tmp_path / "smoke" / "metaworld" / "tables" / f"{name}.json"):
        assert any(note.startswith(("not run: ", "not measured")) for note in table.notes)


TOY_FIGURE = """
from oat.experiments.pictures import save_study_figure
from oat.io.pictures import new_figure
from oat.tables.table import Table


def evaluations(study):
    return []


def tables(study):
    figure = new_figure(2, 2)
    figure.subplots().plot([1, 2])
    return [Table("toy", ("sim",), ((study.sim,),), (save_study_figure(study, "figure-toy", figure),))]
"""


def test_a_new_figure_is_a_file_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_figure.py").write_text(TOY_FIGURE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(EXPERIMENTS, "figure-toy", CatalogueEntry("a toy", "toy_figure"))
    main(["reproduce", "figure-toy", "--scale", "smoke", "--out", str(tmp_path), "--only-tables"])
    folder = tmp_path / "smoke" / "metaworld"
    (table,) = load_tables(folder / "tables/figure-toy.json")
    assert table.rows == (("metaworld",),)
    assert (folder / "figures/figure-toy.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_experiment_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["reproduce", "figure-teasers", "--out", str(tmp_path)])
    assert "Did you mean 'figure-teaser'" in capsys.readouterr().err
