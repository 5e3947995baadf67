"""Where demonstrations came from is remembered, and unknown where it was not; a broken file is named."""

from pathlib import Path

import pytest

from oat.data.convert import convert_dataset
from oat.data.episodes import WhenExists
from oat.data.lerobot import LeRobotWriter
from oat.data.provenance import PROVENANCE_PATH, read_demonstrator, read_provenance
from oat.errors import CorruptDataset
from tests.datasets import FPS, make_episodes, write_lerobot


def _write(path: Path, expert: str, exists: WhenExists = "refuse") -> Path:
    """Write or append two episodes with a record of who demonstrated them."""
    with LeRobotWriter(path, FPS, exists=exists) as writer:
        for episode in make_episodes(2):
            writer.add_episode(episode.task, episode.actions)
        writer.record_provenance({"expert": expert})
    return path


def test_every_addition_is_remembered_in_order(tmp_path: Path) -> None:
    path = _write(_write(tmp_path / "set", "scripted"), "human", exists="append")
    assert read_provenance(path) == [{"expert": "scripted"}, {"expert": "human"}]
    assert read_demonstrator(path) == "human and scripted"


def test_a_conversion_remembers_who_demonstrated(tmp_path: Path) -> None:
    convert_dataset(_write(tmp_path / "set", "scripted"), tmp_path / "converted")
    assert read_demonstrator(tmp_path / "converted") == "scripted"


def test_what_was_not_recorded_is_unknown(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(1), "image")
    assert read_provenance(path) == []
    assert read_demonstrator(path) == "unknown"


@pytest.mark.parametrize(
    ("text", "message"), [("[{", "unreadable"), ('{"expert": "scripted"}', "a list of"), ("[1]", "a list of")]
)
def test_a_broken_record_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = _write(tmp_path / "set", "scripted")
    (path / PROVENANCE_PATH).write_text(text)
    with pytest.raises(CorruptDataset, match=rf"provenance\.json: .*{message}"):
        read_demonstrator(path)
