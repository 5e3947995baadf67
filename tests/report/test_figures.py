"""Figures say what the numbers say, also where there is little to say."""

from dataclasses import replace
from pathlib import Path

import pytest

from oat.data.episodes import Episodes
from oat.report.figures import choose_colours, distortion_figures, log_axis, success_figures
from oat.report.headline import sentences, tiles
from oat.report.loaded import find
from oat.report.reconstructions import Data, best_ordered, reconstruct
from oat.report.rollouts import ClosedLoop, closed_loops
from oat.report.sections import success_sections
from tests.report.material import EPISODES, SUCCESSES, episodes, write_records
from tests.tokenizers.fitted import fitted, smooth_chunks


def loop_of(folder: Path, method: str = "oat") -> ClosedLoop:
    records = [
        each
        for decoding, solved in SUCCESSES.items()
        for each in episodes("p", method, decoding, solved, int(decoding[2:]))
    ]
    write_records(folder, records)
    (loop,) = closed_loops(find(folder))
    return loop


def smooth() -> Data:
    actions = smooth_chunks(20).flatten(0, 1).numpy()
    return Data("smooth", Path("smooth"), Episodes.from_arrays(actions, [16] * 20, ["reach"] * 20))


def test_a_policy_without_chunks_is_told_and_not_drawn(tmp_path: Path) -> None:
    loop = loop_of(tmp_path)
    idle = [replace(row, inference_ms=float("nan")) if row.policy == "oat K=2" else row for row in loop.summaries]
    tokens, time = success_figures("s", replace(loop, summaries=tuple(idle)), {"oat": "#000000"})
    assert tokens.data[0]["x"] == [1, 2, 4, 8]
    assert time.data[0]["x"] == [3, 6, 10]
    assert "not drawn: oat K=2" in time.caption


def test_a_table_has_each_policy_in_one_row(tmp_path: Path) -> None:
    (section,) = success_sections([loop_of(tmp_path)], {"oat": "#000000"})
    (sheet,) = section.sheets
    assert sheet.columns[-6:] == ("push", "overall", "95 %", "episodes", "tokens", "ms")
    assert sheet.rows[0][2:] == ("20.0", "20.0", "10 … 35", str(2 * EPISODES), "1", "3.0")


def test_sentences_compare_the_most_tokens_with_the_fewest(tmp_path: Path) -> None:
    loop = loop_of(tmp_path)
    best, gain = sentences([], [loop])
    assert best.startswith("On 2 tasks (protocol p), oat K=8 solved most: 90.0 % of 40 episodes")
    assert gain.startswith("From oat K=1 to oat K=8 success changes by +70.0 points")
    assert "on the 40 initial conditions that both met: oat K=8 is better" in gain
    assert [tile.value for tile in tiles([], [], [loop])] == ["90.0 %", "160"]


def test_seeds_of_a_method_share_colour_and_legend(tmp_path: Path) -> None:
    for name in ("bin-seed0", "bin-seed1", "oat"):
        fitted(name.split("-")[0]).save(tmp_path / name)
    found = [reconstruct(path.name, path, [smooth()]) for path in find(tmp_path).tokenizers]
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
    assert reconstruct("bin", tmp_path, [motions]).motions
    assert not reconstruct("bin", tmp_path, [positions]).motions


def test_the_best_tokenizer_is_not_the_one_with_the_fewest_prefixes(tmp_path: Path) -> None:
    fitted("oat").save(tmp_path)
    long = reconstruct("long", tmp_path, [smooth()])
    errors = replace(long.evaluation, prefixes=(1, 2, 4, 8), mse=(0.04, 0.02, 0.01, 0.01))
    long = replace(long, evaluation=errors)
    short = replace(long, name="short", evaluation=replace(errors, prefixes=(1, 2), mse=(0.04, 0.03)))
    unordered = replace(long, name="unordered", ordered=False, evaluation=replace(errors, mse=(0.0,) * 4))
    assert best_ordered([short, unordered, long]) is long
    assert best_ordered([unordered]) is None
