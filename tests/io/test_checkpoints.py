"""Checkpoints are found where a run keeps them, and told apart by all that is in them."""

from pathlib import Path

import pytest
import torch

from oat.errors import CheckpointError
from oat.io.checkpoints import checkpoint_kind, find_checkpoint, fingerprint, staged_checkpoint, write_checkpoint
from oat.io.model_cards import ModelCard
from oat.io.training_record import TrainingRecord


def write(folder: Path, value: float, config: dict[str, object] | None = None) -> Path:
    folder.mkdir(parents=True)
    card = ModelCard("A test", "", "", (), {}, [], TrainingRecord())
    write_checkpoint(folder, "test", config or {}, {"weight": torch.full((2,), value)}, card)
    return folder


def test_a_run_stands_for_its_best_checkpoint(tmp_path: Path) -> None:
    best = write(tmp_path / "run" / "best", 1.0)
    assert find_checkpoint(tmp_path / "run") == best
    assert find_checkpoint(str(best)) == best
    assert find_checkpoint(tmp_path / "none") == tmp_path / "none"


def test_any_difference_gives_another_fingerprint(tmp_path: Path) -> None:
    """The configuration and what lies inside, such as a policy's tokenizer, count as much as the weights."""
    made = [
        write(tmp_path / "a", 1.0),
        write(tmp_path / "b", 2.0),
        write(tmp_path / "c", 1.0, {"layers": 2}),
    ]
    for name, value in (("d", 1.0), ("e", 2.0)):
        made.append(write(tmp_path / name, 1.0))
        write(tmp_path / name / "tokenizer", value)
    assert len({fingerprint(folder) for folder in made}) == 5
    (tmp_path / "a").rename(tmp_path / "moved")
    assert fingerprint(tmp_path / "moved") == fingerprint(write(tmp_path / "again", 1.0))


def test_only_a_checkpoint_of_the_same_kind_is_replaced(tmp_path: Path) -> None:
    place = write(tmp_path / "place", 1.0)
    refusal = "place exists and holds 'test'; it is not overwritten by 'other'"
    with pytest.raises(CheckpointError, match=refusal), staged_checkpoint(place, "other"):
        pytest.fail("something was written")
    with staged_checkpoint(place, "test") as staging:
        (staging / "new").write_text("")
    assert [file.name for file in place.iterdir()] == ["new"]
    (tmp_path / "empty").mkdir()
    with staged_checkpoint(tmp_path / "empty", "test") as staging:
        (staging / "config.json").write_text('{"format": "oat", "kind": "test"}')
    assert checkpoint_kind(tmp_path / "empty") == "test"


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="is not a checkpoint"), staged_checkpoint(tmp_path / "file", "test"):
        pytest.fail("something was written")
    assert (tmp_path / "file").read_text() == "mine"
