"""Large columns are decoded once and mapped ever after; a changed source is decoded again."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from oat.data import columns
from oat.data.columns import cache_directory, load_column
from oat.errors import CorruptDataset


class Source:
    """Stand for a file with one column, and count how often it is decoded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.decoded = 0
        self.values = np.arange(12, dtype=np.float64).reshape(6, 2)
        path.write_text("version 1")

    def blocks(self) -> Iterator[np.ndarray]:
        self.decoded += 1
        yield self.values[:4]
        yield self.values[4:]

    def load(self, shape: tuple[int, ...] = (6, 2)) -> np.ndarray:
        return load_column("action", shape, self.blocks, [self.path])


def is_mapped(array: np.ndarray) -> bool:
    """Return whether an array, or what it is a view of, is mapped from a file."""
    base: object = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    return isinstance(base, np.memmap)


def test_small_columns_stay_in_memory(tmp_path: Path) -> None:
    source = Source(tmp_path / "f")
    array = source.load()
    np.testing.assert_array_equal(array, source.values)
    assert array.dtype == np.float32
    assert not is_mapped(array)
    assert not array.flags.writeable
    assert not cache_directory().exists()


def test_large_columns_are_mapped_and_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAP_ABOVE_BYTES", 8)
    source = Source(tmp_path / "f")
    for _ in range(3):
        array = source.load()
        np.testing.assert_array_equal(array, source.values)
        assert is_mapped(array)
    assert source.decoded == 1


def test_a_changed_file_is_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAP_ABOVE_BYTES", 8)
    source = Source(tmp_path / "f")
    source.load()
    source.values = source.values + 1
    source.path.write_text("the second version")
    np.testing.assert_array_equal(source.load(), source.values)
    assert source.decoded == 2


def test_a_damaged_cache_is_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(columns, "MAP_ABOVE_BYTES", 8)
    source = Source(tmp_path / "f")
    source.load()
    (cached,) = cache_directory().iterdir()
    whole = cached.read_bytes()
    np.save(tmp_path / "short.npy", np.zeros((5, 2), np.float32))
    np.save(tmp_path / "double.npy", np.zeros((6, 2)))
    others = [(tmp_path / name).read_bytes() for name in ("short.npy", "double.npy")]
    for number, content in enumerate((b"", whole[:50], whole[:-4], b"x" * len(whole), *others), start=2):
        cached.unlink()
        cached.write_bytes(content)
        np.testing.assert_array_equal(source.load(), source.values)
        assert source.decoded == number
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"note: {cached} is damaged")
        assert line.endswith("it is made again")


@pytest.mark.parametrize("limit", [8, 1 << 20])
def test_wrong_row_counts_are_refused_and_not_cached(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MAP_ABOVE_BYTES", limit)
    source = Source(tmp_path / "f")
    for shape in ((7, 2), (5, 2), (6, 3)):
        with pytest.raises(CorruptDataset, match="action"):
            source.load(shape)
    assert not cache_directory().exists() or list(cache_directory().iterdir()) == []


def test_a_full_disk_under_the_cache_is_reported(tmp_path: Path) -> None:
    """A full disk is an error from a write; through a memory map it would be a bus error that kills the process."""
    code = (
        "import resource, signal, sys, numpy as np\n"
        "from pathlib import Path\n"
        "from oat.data import columns\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        "columns.MAP_ABOVE_BYTES = 8\n"
        "columns.load_column('x', (5000, 2), lambda: [np.zeros((5000, 2))], [Path(sys.argv[1])])\n"
    )
    (tmp_path / "source").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "source")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "the disk is full" in done.stderr
    assert "OAT_CACHE_DIR" in done.stderr
    assert list(cache_directory().iterdir()) == []
