"""Files and directories appear complete or not at all."""

from pathlib import Path

import pytest

from oat.atomic import StagedDirectory, staged_directory, staged_file
from oat.errors import WriteFailed


def _fail() -> None:
    raise RuntimeError("boom")


def test_a_file_is_replaced_only_by_a_complete_one(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "file.txt"
    with staged_file(target) as staging:
        staging.write_text("first")
        assert not target.exists()
    with pytest.raises(RuntimeError, match="boom"), staged_file(target) as staging:
        staging.write_text("second")
        _fail()
    assert target.read_text() == "first"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("exchange", ["in one step", "by renaming"])
def test_a_directory_replaces_another(exchange: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if exchange == "by renaming":  # as on systems without renameat2
        monkeypatch.setattr("oat.atomic.ctypes.CDLL", lambda *args, **kwargs: object())
    target = tmp_path / "set"
    for text in ("first", "second"):
        with staged_directory(target) as staging:
            (staging / "deep").mkdir()
            (staging / "deep" / "file").write_text(text)
        assert (target / "deep" / "file").read_text() == text
        assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(RuntimeError, match="boom"), staged_directory(target) as staging:
        (staging / "deep").mkdir()
        _fail()
    assert (target / "deep" / "file").read_text() == "second"
    assert list(tmp_path.iterdir()) == [target]


def test_what_dead_writers_left_is_removed_and_living_ones_are_not(tmp_path: Path) -> None:
    living = StagedDirectory(tmp_path / "set")
    dead = living.path.with_name(f"{living._prefix}999999999-abcd")
    dead.mkdir()
    other = StagedDirectory(tmp_path / "set")
    assert living.path.exists()
    assert other.path.exists()
    assert not dead.exists()


def test_refusals_of_the_system_are_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(WriteFailed, match="Nothing that existed before was changed"),
        staged_file(tmp_path / "file" / "x"),
    ):
        pass
    with pytest.raises(WriteFailed, match=r"the disk is full.*free some space"), staged_file(tmp_path / "x"):
        raise OSError(28, "No space left on device")
