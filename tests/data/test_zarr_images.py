"""Images in zarr's chunks: read in order they are decoded as they come, at random all of them once."""

import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from oat.data import columns, zarr_images
from oat.data.columns import cache_directory
from oat.data.zarr_images import ChunkedImages
from oat.data.zarr_store import ZarrArray
from oat.errors import CorruptDataset

FRAMES, ROWS = 12, 2
IMAGES = np.random.default_rng(0).integers(0, 256, (FRAMES, 4, 5, 3), np.uint8)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChunkedImages:
    """Return images of which two chunks fit into memory, stored as floats, as diffusion_policy does."""
    zarr = pytest.importorskip("zarr")
    chunk = IMAGES[:ROWS].nbytes
    monkeypatch.setattr(zarr_images, "_CACHE_BYTES", 2 * chunk)
    monkeypatch.setattr(columns, "MAP_ABOVE_BYTES", chunk)
    store = tmp_path / "images.zarr"
    group = zarr.open_group(store, mode="w", zarr_format=2)
    array = group.create_array("data/img", shape=IMAGES.shape, chunks=(ROWS, *IMAGES.shape[1:]), dtype="f4")
    array[:] = IMAGES
    return ChunkedImages(ZarrArray(store, "data/img"), IMAGES.shape, 1.0)


def kept() -> list[Path]:
    """Return the files of decoded columns."""
    return list(cache_directory().iterdir()) if cache_directory().exists() else []


def test_frames_in_order_need_no_disk(images: ChunkedImages) -> None:
    for first in range(FRAMES - 1):
        np.testing.assert_array_equal(images[first : first + 2], IMAGES[first : first + 2])
    assert kept() == []


def test_frames_at_random_are_decoded_once(
    images: ChunkedImages, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decoded: list[int] = []
    read = ZarrArray.chunk

    def watched(self: ZarrArray, number: int) -> np.ndarray:
        decoded.append(number)
        return read(self, number)

    monkeypatch.setattr(ZarrArray, "chunk", watched)
    rng = np.random.default_rng(1)
    for _ in range(20):
        chosen = rng.integers(0, FRAMES, 5)
        np.testing.assert_array_equal(images[chosen], IMAGES[chosen])
    assert len(decoded) <= 2 * FRAMES // ROWS  # once until the first chunk was missed, and once into the file
    assert len(kept()) == 1
    assert "its images are decoded once" in capsys.readouterr().err
    decoded.clear()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(images))[:], IMAGES)
    assert decoded == [], "another process maps what this one decoded"


def test_without_room_they_are_decoded_as_they_come(
    images: ChunkedImages, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * IMAGES.nbytes - 2))
    for chosen in np.random.default_rng(1).integers(0, FRAMES, (20, 5)):
        np.testing.assert_array_equal(images[chosen], IMAGES[chosen])
    assert kept() == []
    assert capsys.readouterr().err.count("OAT_CACHE_DIR") == 1


def test_a_chunk_that_was_lost_meanwhile_is_no_zeros(images: ChunkedImages) -> None:
    for first in range(0, FRAMES, ROWS):
        images[first : first + ROWS]
    another_process = pickle.loads(pickle.dumps(images))
    (images.source.store / "data/img/5.0.0.0").unlink()
    with pytest.raises(CorruptDataset, match="only 5 of its 6 chunks"):
        another_process[:]
