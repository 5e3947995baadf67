"""Figures say what the numbers say, also where there is little to say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oat.data.episodes import Episodes
from oat.report import sections
from oat.report.datasets import NamedDataset
from oat.report.headline import make_sentences, make_tiles
from oat.report.measured_tokenizers import best_ordered, measure_tokenizer
from oat.report.page import write_report
from oat.report.page_data import PageData
from oat.report.plots import Colours, Figure, choose_colours, log_axis
from oat.report.results_folder import ResultsFolder, scan_folder
from oat.report.rollouts import RolloutGroup, read_rollouts
from oat.report.sections.distortion import distortion_figures
from oat.report.sections.section import Part, Section
from oat.report.sections.success import success_figures, success_section
from oat.report.token_courses import read_token_courses
from oat.tables.table import Table
from tests.report.example_results import EPISODES, SUCCESSES, episodes, write_demonstrations, write_records, write_video
from tests.tokenizers.fitted import fitted, smooth_chunks


def group_of(folder: Path, method: str = "oat") -> RolloutGroup:
    records = [
        each
        for decoding, solved in SUCCESSES.items()
        for each in episodes("p", method, decoding, solved, int(decoding[2:]))
    ]
    write_records(folder, records)
    (group,) = read_rollouts(scan_folder(folder))
    return group


def smooth() -> NamedDataset:
    actions = smooth_chunks(20).flatten(0, 1).numpy()
    return NamedDataset("smooth", Path("smooth"), Episodes.from_arrays(actions, [16] * 20, ["reach"] * 20))


def test_a_policy_without_chunks_is_told_and_not_drawn(tmp_path: Path) -> None:
    group = group_of(tmp_path)
    idle = [replace(row, inference_ms=float("nan")) if row.policy == "oat K=2" else row for row in group.summaries]
    tokens, time = success_figures("s", replace(group, summaries=tuple(idle)), {"oat": "#000000"})
    assert tokens.data[0]["x"] == [1, 2, 4, 8]
    assert time.data[0]["x"] == [3, 6, 10]
    assert "not drawn: oat K=2" in time.caption


def test_each_way_to_decode_has_a_mark_and_only_numbers_of_tokens_a_line(tmp_path: Path) -> None:
    ways = {"K=8 greedy": 8, "K=4 greedy": 4, "K=8 greedy residual=0.1": 3, "K=8 greedy residual=0.2": 2}
    write_records(tmp_path, [each for name, tokens in ways.items() for each in episodes("p", "oat", name, 9, tokens)])
    tokens, _ = success_figures("s", read_rollouts(scan_folder(tmp_path))[0], {"oat": "#000000"})
    greedy, stopped = sorted(tokens.data, key=lambda trace: str(trace["name"]))
    assert (greedy["name"], greedy["x"], greedy["text"]) == ("oat greedy", [4, 8], ["K=4", "K=8"])
    assert (stopped["name"], stopped["x"]) == ("oat greedy residual", [2, 3])
    assert "lines" in greedy["mode"]
    assert "lines" not in stopped["mode"]
    assert greedy["marker"]["symbol"] != stopped["marker"]["symbol"]


@pytest.mark.parametrize(("measure", "failing"), [("score", 0.5), ("success", 0)])
def test_where_a_score_tells_more_it_is_drawn_instead_of_success(measure: str, failing: float, tmp_path: Path) -> None:
    made = episodes("p", "oat", "K=8", 9, 8)
    records = [replace(each, best_score=1 if each.success else failing) for each in made]
    write_records(tmp_path, records)
    for figure in success_figures("s", read_rollouts(scan_folder(tmp_path))[0], {"oat": "#000000"}):
        (trace,) = figure.data
        assert trace["y"] == [pytest.approx(100 * np.mean([each.best_score for each in records]))]
        assert trace["error_y"]["array"][0] > 0
        assert figure.title.startswith(f"{measure.capitalize()} against")
        assert figure.layout["yaxis"]["title"]["text"] == f"{measure}, %"
        assert ("best score" in figure.caption) == (measure == "score")


def test_episodes_with_films_are_chosen_and_damaged_films_are_told(tmp_path: Path) -> None:
    records = [replace(each, chunk_tokens=(2, 3)) for each in episodes("p", "oat", "K=8 value=1", 5, 3)]
    write_records(tmp_path, records)
    assert [len(course.frames) for course in read_token_courses(*_folder_and_rollouts(tmp_path))[0][0].examples] == [
        0,
        0,
    ]
    write_video(tmp_path / f"videos/{records[7].key.file_name}.mp4")
    (tmp_path / f"videos/{records[-1].key.file_name}.mp4").write_bytes(b"no film")
    folder, rollouts = _folder_and_rollouts(tmp_path)
    ((courses,), left_out) = read_token_courses(folder, rollouts)
    assert [(len(each.frames), each.outcome) for each in courses.examples] == [(6, "not solved"), (0, "not solved")]
    assert left_out == 0
    assert len(folder.problems) == 1
    assert courses.means["push"] == [2] * 10 + [3] * 10


def _folder_and_rollouts(path: Path) -> tuple[ResultsFolder, list[RolloutGroup]]:
    folder = scan_folder(path)
    return folder, read_rollouts(folder)


def test_a_table_has_each_policy_in_one_row(tmp_path: Path) -> None:
    section = success_section(PageData(rollouts=[group_of(tmp_path)]), {"oat": "#000000"})
    assert section is not None
    (part,) = section.parts
    (table,) = part.tables
    assert table.columns[-6:] == ("push", "overall", "95 %", "episodes", "tokens", "ms")
    assert table.rows[0][2:] == ("20.0", "20.0", "10 … 35", str(2 * EPISODES), "1", "3.0")


def test_sentences_compare_the_most_tokens_with_the_fewest(tmp_path: Path) -> None:
    group = group_of(tmp_path)
    best, gain = make_sentences([], [group])
    assert best.startswith("On 2 tasks (protocol p), oat K=8 solved most: 90.0 % of 40 episodes")
    assert gain.startswith("From oat K=1 to oat K=8 success changes by +70.0 points")
    assert "on the 40 initial conditions that both met: oat K=8 is better" in gain
    assert [tile.value for tile in make_tiles([], [], [group])] == ["90.0 %", "160"]


def test_seeds_of_a_method_share_colour_and_legend(tmp_path: Path) -> None:
    for name in ("bin-seed0", "bin-seed1", "oat"):
        fitted(name.split("-")[0]).save(tmp_path / name)
    found = [measure_tokenizer(path.name, path, [smooth()]) for path in scan_folder(tmp_path).tokenizers]
    bits, tokens = distortion_figures("d", found, choose_colours(each.method for each in found))
    assert [trace["showlegend"] for trace in bits.data] == [True, False, True]
    assert bits.data[0]["line"] == bits.data[1]["line"] != bits.data[2]["line"]
    assert tokens.data[2]["x"] == list(range(1, 9))
    assert bits.data[2]["x"] == pytest.approx([found[2].evaluation.bits * k / 8 for k in range(1, 9)])


def test_a_logarithmic_axis_survives_zeros_and_many_powers() -> None:
    assert log_axis("t", [0.0])["range"] == [-0.05, 0.05]
    low, high = log_axis("t", [0.0, 1.0, 100.0])["range"]
    assert low < 0 < 2 < high
    assert log_axis("t", [1.0, 9.0])["ticktext"] == ["1", "2", "5", "10"]
    assert log_axis("t", [38.0, 61.0])["ticktext"] == ["40", "50", "60", "70"]
    assert log_axis("t", [1.0, 1e5])["ticktext"] == ["1", "10", "100", "1000", "10000", "100000"]


def test_actions_without_zero_are_positions(tmp_path: Path) -> None:
    fitted("bin").save(tmp_path)
    motions = smooth()
    positions = replace(motions, episodes=replace(motions.episodes, actions=motions.episodes.actions + 9))
    assert measure_tokenizer("bin", tmp_path, [motions]).motions
    assert not measure_tokenizer("bin", tmp_path, [positions]).motions


def test_the_best_tokenizer_is_not_the_one_with_the_fewest_prefixes(tmp_path: Path) -> None:
    fitted("oat").save(tmp_path)
    long = measure_tokenizer("long", tmp_path, [smooth()])
    errors = replace(long.evaluation, prefixes=(1, 2, 4, 8), mse=(0.04, 0.02, 0.01, 0.01))
    long = replace(long, evaluation=errors)
    short = replace(long, name="short", evaluation=replace(errors, prefixes=(1, 2), mse=(0.04, 0.03)))
    unordered = replace(long, name="unordered", ordered=False, evaluation=replace(errors, mse=(0.0,) * 4))
    assert best_ordered([short, unordered, long]) is long
    assert best_ordered([unordered]) is None


def test_a_new_section_is_a_function_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lengths_section(data: PageData, colours: Colours) -> Section | None:
        lengths = tuple((dataset.name, str(dataset.episodes.lengths.max())) for dataset in data.datasets)
        table = Table("Longest", ("data set", "steps"), lengths)
        trace = {"type": "bar", "x": [name for name, _ in lengths], "y": [int(steps) for _, steps in lengths]}
        figure = Figure("longest", "Longest episodes", "In steps.", [trace], {})
        return Section("lengths", "Lengths", "How long episodes are.", [Part(tables=[table], figures=[figure])])

    write_demonstrations(tmp_path / "demos")
    monkeypatch.setattr(sections, "SECTIONS", (*sections.SECTIONS, lengths_section))
    write_report(tmp_path, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for shown in ('<a href="#lengths">Lengths</a>', '<section id="lengths">', '<td class="number">40</td>'):
        assert shown in page
    assert '"y": [40]' in page
