"""A lock is held by one process at a time, and ends with it."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from oat.errors import DatasetExists
from oat.io.locks import Lock, exclusive

_HOLD = (
    sys.executable,
    "-c",
    "import sys, pathlib, oat.io.locks as l\nwith l.exclusive(pathlib.Path(sys.argv[1]), 'holding it'): pass",
)
_KILLED = (
    sys.executable,
    "-c",
    "import os, sys, pathlib, oat.io.locks as l\nlock = l.Lock(pathlib.Path(sys.argv[1]), '')\nos.kill(os.getpid(), 9)",
)
_TAKE_TURNS = """
import sys
from pathlib import Path
from oat.errors import DatasetExists
from oat.io.locks import exclusive
folder = Path(sys.argv[1])
counter = folder / "counter"
done = 0
while done < 300:
    try:
        with exclusive(folder, "counting"):
            counter.write_text(str(int(counter.read_text()) + 1))
            done += 1
    except DatasetExists:
        pass
"""


def test_a_folder_is_held_by_one_process(tmp_path: Path) -> None:
    with exclusive(tmp_path / "work", "working"):
        done = subprocess.run([*_HOLD, str(tmp_path / "work")], capture_output=True, text=True, check=False)
        assert "another process is holding it" in done.stderr
    assert subprocess.run([*_HOLD, str(tmp_path / "work")], check=False).returncode == 0
    assert list((tmp_path / "work").iterdir()) == []


def test_what_a_killed_process_held_is_free(tmp_path: Path) -> None:
    assert subprocess.run([*_KILLED, str(tmp_path / "lock")], check=False).returncode == -9
    assert (tmp_path / "lock").exists()
    Lock(tmp_path / "lock", "working").release()
    assert not (tmp_path / "lock").exists()


def test_a_lock_that_nobody_refers_to_any_more_is_free(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock", "working")
    with pytest.raises(DatasetExists, match="another process is working"):
        Lock(tmp_path / "lock", "working")
    del lock
    gc.collect()
    Lock(tmp_path / "lock", "working").release()


def test_no_turn_is_lost_while_lock_files_come_and_go(tmp_path: Path) -> None:
    """Two that held the lock at once would overwrite each other's count."""
    (tmp_path / "counter").write_text("0")
    counting = [subprocess.Popen([sys.executable, "-c", _TAKE_TURNS, str(tmp_path)]) for _ in range(2)]
    assert [process.wait(60) for process in counting] == [0, 0]
    assert (tmp_path / "counter").read_text() == "600"
