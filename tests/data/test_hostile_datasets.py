"""Data sets of strangers: they lead nowhere else, run nothing, and cost no more than they are; errors are one line."""

import json
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from oat.data.episodes import open_dataset
from oat.errors import CorruptDataset, DatasetError
from tests.data.test_bad_datasets import read_everything
from tests.datasets import CAMERA, make_episodes, write_lerobot, write_robomimic, write_zarr


def _change_info(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = path / "meta" / "info.json"
    info = json.loads(file.read_text())
    change(info)
    file.write_text(json.dumps(info))


@pytest.mark.parametrize(
    "template",
    [
        "{chunk_index:1000000000d}.parquet",
        "{chunk_index.__class__}.parquet",
        "{chunk_index!r:>99}.parquet",
        "{home}.parquet",
        "{chunk_index",
        "/etc/{file_index}",
        "data/../../{chunk_index}",
        "..\\{chunk_index}",
        "C:{chunk_index}",
        "",
    ],
)
@pytest.mark.parametrize("place", ["data_path", "video_path"])
def test_paths_are_parsed_and_stay_inside(template: str, place: str, tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2), cameras="video")
    _change_info(path, lambda info: info.update({place: template}))
    with pytest.raises(CorruptDataset, match=r"not allowed"):
        read_everything(path)


def test_images_that_are_declared_as_numbers_are_refused(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2), cameras="image")
    _change_info(path, lambda info: info["features"][CAMERA].update(dtype="float32"))
    with pytest.raises(CorruptDataset, match=r"numbers in \d+ rows of shape"):
        read_everything(path)


def test_a_camera_s_name_does_not_lead_outside(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2), cameras="video")
    _change_info(path, lambda info: info.update(video_path="{video_key}/x.mp4"))
    with pytest.raises(CorruptDataset, match=r"named by the metadata, but not there"):
        read_everything(path)
    key = "observation/../../other"
    table = (path / "meta" / "episodes").rglob("*.parquet").__next__()
    columns = pq.read_table(table)
    pq.write_table(columns.rename_columns([n.replace(CAMERA, key) for n in columns.column_names]), table)
    _change_info(path, lambda info: info["features"].update({key: info["features"].pop(CAMERA)}))
    with pytest.raises(CorruptDataset, match="it leaves the data set"):
        read_everything(path)


@pytest.mark.parametrize("storage", ["video", "image"])
def test_images_of_absurd_size_are_refused(storage: str, tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2), cameras=storage)
    _change_info(path, lambda info: info["features"][CAMERA].update(shape=[10**6, 10**6, 3]))
    with pytest.raises(CorruptDataset, match="sides of 1…8192 pixels"):
        open_dataset(path)


@pytest.mark.parametrize("storage", ["video", "image"])
def test_flipped_bytes_give_typed_errors_in_one_line(storage: str, tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(3), cameras=storage)
    draw = random.Random(3)
    files = [file for file in sorted(path.rglob("*")) if file.suffix in (".mp4", ".parquet")]
    for _ in range(40):
        file = draw.choice(files)
        whole = file.read_bytes()
        damaged = bytearray(whole)
        for _ in range(draw.choice([1, 8, 64])):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        file.write_bytes(damaged)
        assert "\n" not in _complaint(path)
        file.write_bytes(whole)


def _complaint(path: Path) -> str:
    try:
        read_everything(path)
    except DatasetError as error:
        return str(error)
    return ""


def test_a_small_archive_does_not_become_a_large_one(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("actions.npy", "w") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (2**20, 100)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(400):
            file.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    with pytest.raises(CorruptDataset, match="would grow from"):
        open_dataset(path)


def test_an_array_is_as_large_as_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "claims.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("actions.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**9)})
    with pytest.raises(CorruptDataset, match="its header describes"):
        open_dataset(path)


def test_links_of_hdf5_to_other_files_are_refused(tmp_path: Path) -> None:
    write_robomimic(tmp_path / "secret.hdf5", make_episodes(2))
    path = write_robomimic(tmp_path / "set" / "demo.hdf5", make_episodes(2))
    with h5py.File(path, "a") as file:
        file["data/demo_9"] = h5py.ExternalLink("../secret.hdf5", "data/demo_0")
    with pytest.raises(CorruptDataset, match="link to another file"):
        open_dataset(path)
    with h5py.File(path, "a") as file:
        del file["data/demo_9"]
        (tmp_path / "raw").write_bytes(bytes(1200))
        external = [(str(tmp_path / "raw"), 0, 1200)]
        file.create_dataset("data/demo_0/obs/raw", (100, 3), np.float32, external=external)
    with pytest.raises(CorruptDataset, match=r"contents of .* are in another file"):
        open_dataset(path)


def test_zarr_neither_unpickles_nor_decodes_without_bounds(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "set.zarr", make_episodes(2))
    group = zarr.open_group(path, mode="a")
    group.create_array("data/large", shape=(10, 10**6), chunks=(10**6, 10**6), dtype="float32")
    with pytest.raises(CorruptDataset, match=r"a chunk of data/large would have"):
        open_dataset(path)


class _Touch:
    """Unpickled, it would create a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("name", ["meta/episode_ends", "data/state"])
def test_zarr_runs_no_pickle(name: str, tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "set.zarr", make_episodes(1))
    described = json.loads((path / name / ".zarray").read_text())
    described |= {"dtype": "|O", "filters": [{"id": "pickle", "protocol": 5}], "compressor": None}
    (path / name / ".zarray").write_text(json.dumps(described | {"fill_value": None}))
    for chunk in (path / name).glob("[0-9]*"):
        chunk.write_bytes(pickle.dumps(_Touch(tmp_path / "touched")))
    with pytest.raises(CorruptDataset):
        read_everything(path)
    assert not (tmp_path / "touched").exists()
