"""What `oat view` saves, read back from the file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oat.cli import main
from oat.errors import InvalidOption
from oat.evaluation.records import RECORDS_FILE, RecordLog
from oat.report.view import view
from tests.datasets import CAMERA, make_episodes, write_lerobot
from tests.report.example_results import episodes, write_records, write_video
from tests.tokenizers.fitted import fitted_to, smooth_chunks

rerun = pytest.importorskip("rerun")
EPISODES = make_episodes(4)


def logged(file: Path) -> dict[str, list[Any]]:
    """Return the values of every entity in a recording, in the order of its timeline."""
    found: dict[str, list[Any]] = {}
    for chunk in rerun.chunk.RrdReader(str(file)).stream().to_chunks():
        batch = chunk.to_record_batch()
        found.setdefault(str(chunk.entity_path), []).extend(batch.column(batch.num_columns - 1).to_pylist())
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_lerobot(tmp_path / "set", EPISODES)


def test_episodes_are_logged_with_states_and_cameras(data: Path, tmp_path: Path) -> None:
    main(["view", str(data), "--episodes", "1,3", "--save", str(tmp_path / "set.rrd")])
    values = logged(tmp_path / "set.rrd")
    for number in (1, 3):
        actions = EPISODES[number].actions
        for dim in range(3):
            np.testing.assert_allclose(np.ravel(values[f"/episode_{number}/action/{dim}"]), actions[:, dim], rtol=1e-6)
        states = values[f"/episode_{number}/observation.state/2"]
        np.testing.assert_allclose(np.ravel(states), EPISODES[number].states[:, 2], rtol=1e-6)
        assert len(values[f"/episode_{number}/{CAMERA}"]) == len(actions)
    assert not any(place.startswith("/episode_0") for place in values)


def test_a_chunk_is_shown_by_every_number_of_tokens(data: Path, tmp_path: Path) -> None:
    fitted_to(smooth_chunks(50, horizon=4), "oat").save(tmp_path / "oat")
    view(data, tmp_path / "oat", "2", tmp_path / "set.rrd")
    values = logged(tmp_path / "set.rrd")
    for tokens in range(1, 9):
        assert len(values[f"/episode_2/decoded/tokens_{tokens}/0"]) == len(EPISODES[2].actions)


def test_rollouts_are_shown_with_their_videos(tmp_path: Path) -> None:
    records = episodes("protocol", "oat", "K=8", solved=20, tokens=8)
    write_records(tmp_path, records)
    (tmp_path / "videos").mkdir()
    write_video(tmp_path / "videos" / f"{records[-1].key.file_name}.mp4")
    view(tmp_path, None, None, tmp_path / "rollouts.rrd")
    values = logged(tmp_path / "rollouts.rrd")
    (video,) = (rows for place, rows in values.items() if place.endswith("/video"))
    assert len(video) == 11  # the film, and when each of its ten frames is shown
    assert any("success after" in str(rows) for place, rows in values.items() if place.endswith("/outcome"))


def test_mistakes_have_names(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"end with \.rrd"):
        view(data, None, None, tmp_path / "set.mp4")
    fitted_to(smooth_chunks(50, dim=2), "bin").save(tmp_path / "bin")
    with pytest.raises(InvalidOption, match="3-D actions, the tokenizer is for 2-D"):
        view(data, tmp_path / "bin", None, tmp_path / "set.rrd")
    assert not (tmp_path / "set.rrd").exists()
    RecordLog(tmp_path / RECORDS_FILE).close()
    with pytest.raises(InvalidOption, match="means nothing to an evaluation"):
        view(tmp_path, None, "0", tmp_path / "set.rrd")
    with pytest.raises(InvalidOption, match="has no videos"):
        view(tmp_path, None, None, tmp_path / "set.rrd")
