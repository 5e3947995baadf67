"""Files and directories appear complete or not at all."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oat.errors import DatasetExists, WriteFailed
from oat.io.atomic import StagedDirectory, new_file, staged_directory, staged_file


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
        monkeypatch.setattr("oat.io.atomic.ctypes.CDLL", lambda *args, **kwargs: object())
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
    dead = living.path.with_name(living.path.name.replace(f"-{os.getpid()}-", "-999999999-"))
    dead.mkdir()
    with staged_file(tmp_path / "set.txt") as other:  # another one beside the same place
        other.touch()
        assert living.path.exists()
        assert not dead.exists()


def test_a_directory_is_staged_by_one_at_a_time(tmp_path: Path) -> None:
    target = tmp_path / "set"
    first = StagedDirectory(target)
    with pytest.raises(DatasetExists, match="another process is writing"):
        StagedDirectory(target)
    (first.path / "file").write_text("first")
    first.commit()
    with staged_directory(target) as second:
        (second / "file").write_text("second")
    assert (target / "file").read_text() == "second"
    assert list(tmp_path.iterdir()) == [target]


def _replaced(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    (target / "file").write_text("theirs")


def _edited(target: Path) -> None:
    target.mkdir(exist_ok=True)
    (target / "file").write_text("theirs")


@pytest.mark.parametrize("change", [_replaced, _edited])
@pytest.mark.parametrize("existed", [False, True])
def test_what_others_wrote_meanwhile_is_never_replaced(
    existed: bool, change: Callable[[Path], None], tmp_path: Path
) -> None:
    """By programs that know nothing of our locks."""
    target = tmp_path / "set"
    if existed:
        target.mkdir()
        (target / "file").write_text("ours")
    mine = StagedDirectory(target)
    (mine.path / "file").write_text("mine")
    change(target)
    for attempt in (mine.check, mine.commit):
        with pytest.raises(DatasetExists, match="changed by another process"):
            attempt()
    mine.discard()
    assert (target / "file").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [target]


def test_a_new_file_is_never_one_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("shared")
    with pytest.raises(FileExistsError):
        new_file(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "shared"
    assert new_file(tmp_path / "deep" / "file").read_text() == ""


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "set")
    for text in ("first", "second"):
        with staged_directory(tmp_path / "link") as staging:
            (staging / "file").write_text(text)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "set" / "file").read_text() == "second"


def test_refusals_of_the_system_are_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(WriteFailed, match="Nothing that existed before was changed"),
        staged_file(tmp_path / "file" / "x"),
    ):
        pass
    with pytest.raises(WriteFailed, match=r"the disk is full.*free some space"), staged_file(tmp_path / "x"):
        raise OSError(28, "No space left on device")
