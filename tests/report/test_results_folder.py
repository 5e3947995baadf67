"""What lies below a directory is found wherever it lies; what cannot be shown is told, and nothing counts twice."""

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from oat.cli import main
from oat.errors import InvalidOption
from oat.evaluation.records import read_records
from oat.report.curves import read_training_curves
from oat.report.page import write_report
from oat.report.page_data import PageData, load_page_data
from oat.report.plots import choose_colours
from oat.report.results_folder import scan_folder
from oat.report.rollouts import read_rollouts
from oat.report.sections.success import success_figures
from oat.report.videos import choose_videos
from oat.tables.files import save_tables
from oat.tables.table import Table
from oat.training.config import FitConfig
from oat.training.tokenizers import fit_tokenizer
from tests.datasets import make_episodes, write_lerobot
from tests.evaluation.test_records import record
from tests.policies.small import autoregressive
from tests.report.example_results import HORIZON, PIXEL, episodes, write_demonstrations, write_records, write_video
from tests.tokenizers.fitted import fitted


def test_everything_is_found_once_and_insides_are_not_searched(tmp_path: Path) -> None:
    write_lerobot(tmp_path / "deep/down/demos", make_episodes(2))
    fitted("bin").save(tmp_path / "tokenizers/bin")
    fitted("oat").save(tmp_path / "tokenizers/oat/best")
    autoregressive("oat").save(tmp_path / "policies/oat/best")
    (tmp_path / "policies/oat/metrics.jsonl").touch()
    (tmp_path / "policies/begun").mkdir()
    (tmp_path / "policies/begun/metrics.jsonl").touch()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden/records.jsonl").touch()
    write_records(tmp_path / "records/oat", [record(1)])
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/sim.json").write_text("[]")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "records/circle").symlink_to(tmp_path)
    folder = scan_folder(tmp_path)
    assert folder.datasets == [tmp_path / "deep/down/demos"]
    assert folder.tokenizers == [tmp_path / "tokenizers/bin", tmp_path / "tokenizers/oat"]
    assert folder.policies == [tmp_path / "policies/oat"]
    assert folder.runs == [tmp_path / "policies/begun", tmp_path / "policies/oat"]
    assert folder.records == [tmp_path / "records/oat/records.jsonl"]
    assert folder.tables == [tmp_path / "tables/sim.json"]


def test_a_run_itself_can_be_shown(tmp_path: Path) -> None:
    fitted("oat").save(tmp_path / "run/best")
    folder = scan_folder(tmp_path / "run")
    assert folder.short_names(folder.tokenizers) == {tmp_path / "run": "run"}


def test_names_are_short_where_they_are_unique(tmp_path: Path) -> None:
    for path in ("a/oat", "b/oat", "b/bin"):
        fitted("bin").save(tmp_path / path)
    folder = scan_folder(tmp_path)
    assert list(folder.short_names(folder.tokenizers).values()) == ["a/oat", "bin", "b/oat"]


def test_nothing_to_report_is_an_error_that_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"not a directory.*meta/info\.json"):
        write_report(tmp_path / "none", tmp_path / "page.html")
    with pytest.raises(InvalidOption, match=r"nothing to report.*records\.jsonl"):
        write_report(tmp_path, tmp_path / "page.html")
    (tmp_path / "records.jsonl").write_text("{}\n")
    with pytest.raises(InvalidOption, match=r"could be read.*line 1: not a record"):
        write_report(tmp_path, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_what_cannot_be_read_is_told_and_the_rest_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted("bin").save(tmp_path / "tokenizers/bin")
    fitted("oat").save(tmp_path / "tokenizers/oat")
    (tmp_path / "tokenizers/bin/model.safetensors").write_bytes(b"?")
    write_records(tmp_path / "records/oat", [record(1)])
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/sim.json").write_text('{"<b>": 1}')
    main(["report", str(tmp_path), "--out", str(tmp_path / "deep/page.html")])
    told, page = capsys.readouterr().out, (tmp_path / "deep/page.html").read_text()
    assert "model.safetensors is damaged" in told
    assert "model.safetensors is damaged" in page
    assert "no data set with 3-D actions to hold the tokenizer oat against; name one with --data" in page
    assert "not a file of tables" in page
    assert "Not found here: data sets, tokenizers, rollout videos, tables, training logs." in page
    assert 'id="refinement"' not in page
    assert 'id="success"' in page


def test_tokenizers_are_held_against_the_data_they_were_fitted_to(tmp_path: Path) -> None:
    first, second = (write_demonstrations(tmp_path / name) for name in ("a", "b"))
    write_demonstrations(tmp_path / "c", dim=2)
    fit_tokenizer(FitConfig.of(second, tmp_path / "bin-seed0", "bin", action_horizon=HORIZON))
    (mine,) = load_page_data(scan_folder(tmp_path)).tokenizers
    assert (mine.data, mine.method, mine.remark) == ("b", "bin", "")
    chosen = load_page_data(scan_folder(tmp_path), tmp_path / "b/../a")
    assert len(chosen.datasets) == 3
    assert chosen.tokenizers[0].data == "a"
    shutil.move(second, tmp_path.with_name("moved"))
    (mine,) = load_page_data(scan_folder(tmp_path)).tokenizers
    assert (mine.data, mine.remark) == ("a", "")  # as many frames: taken for the same set at another place
    write_lerobot(tmp_path / "d", make_episodes(12))
    shutil.rmtree(first)
    (mine,) = load_page_data(scan_folder(tmp_path)).tokenizers
    assert "may not be new to it" in mine.remark
    (mine,) = load_page_data(scan_folder(tmp_path), tmp_path.with_name("moved")).tokenizers
    assert (mine.data, mine.remark) == ("moved", "")


def test_gzipped_records_are_read_and_episodes_in_two_files_count_once(tmp_path: Path) -> None:
    write_records(tmp_path / "records", episodes("p", "oat", "K=1", 5, 1))
    plain = tmp_path / "records/records.jsonl"
    (tmp_path / "records/records.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert read_records(plain) == read_records(tmp_path / "records/records.jsonl.gz")
    folder = scan_folder(tmp_path)
    (group,) = read_rollouts(folder)
    assert len(group.records) == 40
    assert folder.problems == [
        "40 episodes of records/records.jsonl.gz are also in records/records.jsonl; they count once"
    ]


def evaluated(folder: Path, seed: int, checkpoint: str, *decodings: str, method: str = "oat") -> None:
    """Records of one policy."""
    write_records(
        folder,
        [
            replace(each, key=replace(each.key, training_seed=seed, checkpoint=checkpoint))
            for decoding in decodings
            for each in episodes("p", method, decoding, 5, int(decoding[2:]))
        ],
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_variants_that_records_call_alike_go_by_their_directories(tmp_path: Path, seed: int) -> None:
    """Also where their training seeds differ, so that they could be taken for one method."""
    evaluated(tmp_path / f"oat-seed{seed}", seed, "a", "K=1", "K=8")
    evaluated(tmp_path / "oat-seed2-execute8", 2, "b", "K=1", "K=8")
    evaluated(tmp_path / "oat-flow-seed0", 0, "c", "K=1", "K=8")
    evaluated(tmp_path / "oat-flow-seed1", 1, "d", "K=1", "K=8", method="oat-flow")
    evaluated(tmp_path / "quest-seed0", 0, "e", "K=8", method="quest")
    (group,) = read_rollouts(scan_folder(tmp_path))
    assert {row.policy: row.training_seeds for row in group.overall} == {
        **{"oat-flow K=1": 2, "oat-flow K=8": 2, "oat K=1": 2, "oat K=8": 2},
        **{"quest K=8": 1},
    }
    assert list(dict.fromkeys(group.methods.values())) == ["oat-flow", "oat", "quest"]
    tokens, _ = success_figures("s", group, choose_colours(group.methods.values()))
    assert [trace["x"] for trace in tokens.data] == [[1, 8], [1, 8], [8]]


def test_variants_in_directories_of_any_name_go_by_their_fingerprints(tmp_path: Path) -> None:
    evaluated(tmp_path / "eval", 0, "a", "K=1", "K=8")
    evaluated(tmp_path / "more", 0, "a", "K=2")
    evaluated(tmp_path / "other", 0, "b", "K=8")
    (group,) = read_rollouts(scan_folder(tmp_path))
    assert [row.policy for row in group.overall] == ["oat a K=1", "oat a K=8", "oat a K=2", "oat b K=8"]
    assert list(group.methods.values()) == ["oat a", "oat a", "oat a", "oat b"]


def test_videos_are_found_for_episodes_whose_method_was_renamed(tmp_path: Path) -> None:
    for name, checkpoint in (("oat-seed0", "a"), ("oat-flow-seed0", "b")):
        evaluated(tmp_path / name, 0, checkpoint, "K=8")
        first = read_records(tmp_path / name / "records.jsonl")[0]
        write_video(tmp_path / name / f"videos/{first.key.file_name}.mp4")
    folder = scan_folder(tmp_path)
    shown, _ = choose_videos(folder, read_rollouts(folder))
    assert [video.caption.split(":")[0] for video in shown] == ["oat-flow K=8", "oat K=8"]


def test_a_policy_that_met_fewer_tasks_is_told(tmp_path: Path) -> None:
    few = [each for each in episodes("p", "dp", "10 steps", 5, 10) if each.key.task == "push"]
    write_records(tmp_path, [*episodes("p", "oat", "K=1", 5, 1), *few])
    (group,) = read_rollouts(scan_folder(tmp_path))
    (remark,) = group.remarks()
    assert remark.startswith("dp 10 steps has no episodes of reach")


def test_videos_take_turns_and_the_others_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        replace(each, key=replace(each.key, method=method), success=method == "oat")
        for method in ("dp", "oat")
        for each in (record(1), record(2))
    ]
    write_records(tmp_path, records)
    for each in records:
        write_video(tmp_path / f"videos/{each.key.file_name}.mp4")
    folder = scan_folder(tmp_path)
    shown, left_out = choose_videos(folder, read_rollouts(folder))
    assert [video.outcome for video in shown] == ["not solved in 20 steps", "solved in 20 steps"] * 2
    assert left_out == 0
    monkeypatch.setattr("oat.report.videos._MOST_VIDEOS", 3)
    shown, left_out = choose_videos(folder, read_rollouts(folder))
    assert (len(shown), left_out) == (3, 1)
    monkeypatch.setattr("oat.report.videos._MOST_BYTES", 1000)
    assert choose_videos(folder, read_rollouts(folder)) == ([], 4)


def test_curves_are_thinned_and_a_line_that_a_kill_cut_short_is_passed_over(tmp_path: Path) -> None:
    lines = [json.dumps({"step": step, "loss": float(step), "processes": 1}) for step in range(1, 1001)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 1001, "lo')
    (curve,) = read_training_curves(scan_folder(tmp_path))
    assert (curve.measure, curve.group) == ("loss", "runs without a checkpoint yet")
    assert len(curve.steps) < 400
    assert (curve.steps[0], curve.steps[-1]) == (1, 1000)
    (tmp_path / "metrics.jsonl").write_text('[]\n{"step": 1}\n')
    folder = scan_folder(tmp_path)
    with pytest.raises(InvalidOption, match="line 1: not a line of a training log"):
        load_page_data(folder)


def test_a_picture_is_shown_and_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those in the folder of figures, where it is not too large for a page."""
    for name, picture in (("a", "figures/a.png"), ("b", "figures/none.png"), ("c", "../../c.png"), ("d", "figures")):
        save_tables(tmp_path / f"tables/{name}.json", [Table(name, ("x",), (), ("n", f"picture: {picture}"))] * 2)
    (tmp_path / "figures").mkdir()
    for path in (tmp_path / "figures/a.png", tmp_path.parent / "c.png"):
        path.write_bytes(PIXEL)
    tables = load_page_data(scan_folder(tmp_path)).tables
    assert [[picture[:22] for picture in file.pictures] for file in tables] == [["data:image/png;base64,"], [], [], []]
    assert {table.notes for file in tables for table in file.tables} == {("n",)}
    monkeypatch.setattr("oat.report.page_data._PICTURE_BYTES", 10)
    folder = scan_folder(tmp_path)
    assert not any(file.pictures for file in load_page_data(folder).tables)
    assert folder.problems == ["figures/a.png is left out to keep this page small"]


def test_a_policy_alone_is_shown_with_its_origin(tmp_path: Path) -> None:
    autoregressive("oat").save(tmp_path / "policy/best")
    write_report(tmp_path, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "autoregressive" in page
    assert f"Not found here: {', '.join(PageData().missing())}." in page
