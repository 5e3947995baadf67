"""An append is all or nothing, whatever else happens to the set meanwhile, and a refused one changes nothing."""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oat.data.episodes import STATE, open_dataset
from oat.data.lerobot import LeRobotWriter
from oat.errors import DatasetExists
from tests.data.test_formats import assert_same
from tests.datasets import CAMERA, FPS, Reference, make_episodes, write_lerobot


def _add(writer: LeRobotWriter, episodes: list[Reference]) -> None:
    for e in episodes:
        writer.add_episode(e.task, e.actions, {STATE: e.states, CAMERA: e.images})


@pytest.mark.parametrize("exists", ["refuse", "append", "overwrite"])
def test_a_second_writer_is_refused_at_once(exists: Any, tmp_path: Path) -> None:
    path = tmp_path / "set"
    if exists != "refuse":
        write_lerobot(path, make_episodes(2))
    with LeRobotWriter(path, FPS, exists=exists, cameras="image") as first:
        with pytest.raises(DatasetExists, match="another process is writing"):
            LeRobotWriter(path, FPS, exists=exists, cameras="image")
        _add(first, make_episodes(3, seed=1))
    assert len(open_dataset(path)) == (5 if exists == "append" else 3)
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_is_refused_or_discarded_does_not_hold_the_set(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2))
    with pytest.raises(DatasetExists, match="append"):
        LeRobotWriter(path, FPS)
    LeRobotWriter(path, FPS, exists="append").discard()
    write_lerobot(path, make_episodes(1), exists="append")
    assert len(open_dataset(path)) == 3


def _replace(path: Path, other: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(other, path)


def _copy_over(path: Path, other: Path) -> None:
    shutil.copytree(other, path, dirs_exist_ok=True)


@pytest.mark.parametrize("cameras", ["image", "video"])
@pytest.mark.parametrize("change", [_replace, _copy_over])
@pytest.mark.parametrize("late", [False, True])
def test_a_refused_append_leaves_what_others_made_of_the_set(
    late: bool, change: Callable[[Path, Path], None], cameras: str, tmp_path: Path
) -> None:
    """Other programs know no locks; the set that they put there has the very files that the writer would begin."""
    first, theirs = make_episodes(2), make_episodes(3, seed=1)
    path = write_lerobot(tmp_path / "set", first, cameras)
    other = Path(shutil.copytree(path, tmp_path / "other"))
    write_lerobot(other, theirs, cameras, exists="append")
    with (
        pytest.raises(DatasetExists, match="changed by another process"),
        LeRobotWriter(path, FPS, exists="append", cameras=cameras) as writer,  # type: ignore[arg-type]
    ):
        if late:
            _add(writer, make_episodes(1, seed=2))
        change(path, other)
        _add(writer, make_episodes(4, seed=3))
    assert_same(open_dataset(path), [*first, *theirs], exact_images=cameras == "image")
    assert {p.name for p in tmp_path.iterdir()} == {"set", "other"}


def test_a_file_that_no_episode_names_is_neither_opened_nor_lost(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2))
    stray = path / "data/chunk-000/file-001.parquet"
    stray.write_bytes(b"something of the user's")
    copy = tmp_path / "copy"
    copy.hardlink_to(stray)
    write_lerobot(path, make_episodes(2, seed=1), exists="append")
    assert_same(open_dataset(path), [*make_episodes(2), *make_episodes(2, seed=1)], exact_images=True)
    assert stray.read_bytes() == copy.read_bytes() == b"something of the user's"


_APPEND = """
import random, sys, time
import numpy as np
from oat.data.lerobot import LeRobotWriter
from oat.errors import DatasetExists

path, name, seed, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
chance = random.Random(seed)
end = time.monotonic() + seconds
appended = 0
while time.monotonic() < end:
    episodes = chance.randint(1, 3)
    try:
        with LeRobotWriter(path, 20, exists="append") as writer:
            for _ in range(episodes):
                time.sleep(chance.choice((0, chance.uniform(0, 0.02))))
                writer.add_episode(f"{name} {appended}", np.full((5, 3), appended))
        print(episodes)
        appended += 1
    except DatasetExists:
        print("refused")
    time.sleep(chance.choice((0, chance.uniform(0, 0.05))))
"""


def test_two_processes_that_append_at_random_times_lose_nothing(tmp_path: Path) -> None:
    """Every append that succeeded is there, whole; those that were refused left no trace."""
    path = tmp_path / "set"
    with LeRobotWriter(path, FPS) as writer:
        writer.add_episode("base 0", np.zeros((5, 3)))
    names = ("first", "second")
    writing = [
        subprocess.Popen([sys.executable, "-c", _APPEND, str(path), name, str(seed), "5"], stdout=-1, text=True)
        for seed, name in enumerate(names)
    ]
    told = [process.communicate(timeout=60)[0].splitlines() for process in writing]
    assert [process.returncode for process in writing] == [0, 0]
    assert all("refused" in lines for lines in told), "they never met"
    expected = Counter({"base 0": 1})
    for name, lines in zip(names, told, strict=True):
        appended = [int(line) for line in lines if line != "refused"]
        expected |= Counter({f"{name} {number}": episodes for number, episodes in enumerate(appended)})
    read = open_dataset(path)
    assert Counter(read.task(number) for number in range(len(read))) == expected
    for number in range(len(read)):
        assert (read.actions[read.frames(number)] == int(read.task(number).split()[1])).all()
    assert [p.name for p in tmp_path.iterdir()] == ["set"]
