"""A byte that changes on the disk is noticed where the format can know, when a set is opened or verified."""

import json
import os
import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from oat.cli import main
from oat.data.episodes import open_dataset
from oat.data.lerobot.digests import DIGESTS_PATH
from oat.data.verify import verify_dataset
from oat.errors import CorruptDataset, DatasetError
from tests.data.test_bad_datasets import read_everything
from tests.datasets import make_episodes, write_lerobot, write_npz, write_zarr


def _flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("storage", ["video", "image"])
def test_a_flipped_bit_anywhere_in_our_sets_is_noticed(storage: str, tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(3), cameras=storage, digests=True)
    open_dataset(path)
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name != "digests.json"]
    assert {file.relative_to(path).as_posix() for file in files} == set(json.loads((path / DIGESTS_PATH).read_text()))
    draw = random.Random(0)
    for file in files * 2:
        whole = file.read_bytes()
        _flip(file, draw.randrange(len(whole)))
        with pytest.raises(CorruptDataset, match="was changed after the set was written"):
            open_dataset(path)
        file.write_bytes(whole)
    open_dataset(path)


def test_contents_are_compared_once_and_again_on_request(tmp_path: Path) -> None:
    """A change that keeps size and time is not looked for at every opening: `--verify` finds it."""
    path = write_lerobot(tmp_path / "set", make_episodes(2), digests=True)
    open_dataset(path)
    (file,) = (path / "data").rglob("*.parquet")
    before = file.stat()
    _flip(file, 4000)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CorruptDataset, match="was changed"):
        verify_dataset(path)
    with pytest.raises(SystemExit, match="1"):
        main(["inspect", str(path), "--verify"])


def test_pages_of_our_parquet_files_have_checksums(tmp_path: Path) -> None:
    """Also where the digests are gone, as after LeRobot's own tools have written the set again."""
    path = write_lerobot(tmp_path / "set", make_episodes(4))
    (file,) = (path / "data").rglob("*.parquet")
    expected = open_dataset(path).actions.copy()
    whole = file.read_bytes()
    for place in range(4, len(whole) // 2, 97):
        _flip(file, place)
        with suppress(DatasetError):
            read_everything(path)
            assert np.array_equal(open_dataset(path).actions, expected)
        file.write_bytes(whole)


def test_appending_keeps_the_digests_right(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2), digests=True)
    write_lerobot(path, make_episodes(3, seed=1), exists="append", digests=True)
    assert len(open_dataset(path)) == 5
    assert verify_dataset(path) == len(open_dataset(path).actions)
    (path / "data" / "chunk-000" / "file-000.parquet").unlink()
    with pytest.raises(CorruptDataset, match="but not there"):
        open_dataset(path)


def test_every_flipped_byte_of_a_mapped_archive_is_noticed(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "set.npz", make_episodes(3))
    expected = open_dataset(path).actions.copy()
    whole = path.read_bytes()
    draw = random.Random(2)
    for _ in range(40):
        _flip(path, draw.randrange(len(whole)))
        with suppress(DatasetError):
            assert np.array_equal(open_dataset(path, check=False).actions, expected)
        path.write_bytes(whole)


def test_what_is_sound_is_verified(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "set.zarr", make_episodes(2))
    assert verify_dataset(path) == len(open_dataset(path).actions)
