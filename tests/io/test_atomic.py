"""Files and directories appear complete or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oat.errors import DatasetExists, WriteFailed
from oat.io.atomic import StagedDirectory, exclusive, identity, staged_directory, staged_file


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
    living = StagedDirectory(tmp_path / "set", None)
    dead = living.path.with_name(living.path.name.replace(f"-{os.getpid()}-", "-999999999-"))
    dead.mkdir()
    other = StagedDirectory(tmp_path / "set", None)
    assert living.path.exists()
    assert other.path.exists()
    assert not dead.exists()


@pytest.mark.parametrize("existed", [False, True])
def test_what_another_process_wrote_meanwhile_is_never_replaced(existed: bool, tmp_path: Path) -> None:
    target = tmp_path / "set"
    if existed:
        target.mkdir()
    mine = StagedDirectory(target, identity(target))
    with staged_directory(target) as theirs:
        (theirs / "file").write_text("theirs")
    with pytest.raises(DatasetExists, match="changed by another process"):
        mine.commit()
    mine.discard()
    assert (target / "file").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "set")
    for text in ("first", "second"):
        with staged_directory(tmp_path / "link") as staging:
            (staging / "file").write_text(text)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "set" / "file").read_text() == "second"


_HOLD = (
    sys.executable,
    "-c",
    "import sys, pathlib, oat.io.atomic as a\nwith a.exclusive(pathlib.Path(sys.argv[1]), 'holding it'): pass",
)


def test_a_folder_is_held_by_one_process(tmp_path: Path) -> None:
    with exclusive(tmp_path / "work", "working"):
        done = subprocess.run([*_HOLD, str(tmp_path / "work")], capture_output=True, text=True, check=False)
        assert "another process is holding it" in done.stderr
    assert subprocess.run([*_HOLD, str(tmp_path / "work")], check=False).returncode == 0


def test_refusals_of_the_system_are_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(WriteFailed, match="Nothing that existed before was changed"),
        staged_file(tmp_path / "file" / "x"),
    ):
        pass
    with pytest.raises(WriteFailed, match=r"the disk is full.*free some space"), staged_file(tmp_path / "x"):
        raise OSError(28, "No space left on device")
