"""Every format gives back what was written into it."""

import multiprocessing
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from oat.data.convert import convert_dataset
from oat.data.episodes import STATE, Episodes, open_dataset
from oat.errors import UnknownFormat, UnknownName
from tests.datasets import (
    CAMERA,
    EXACT_IMAGES,
    FPS,
    KNOWS_FPS,
    SEVERAL_TASKS,
    WRITERS,
    Reference,
    make_episodes,
    write_lerobot,
    write_libero,
    write_npz,
    write_robomimic,
    write_zarr,
)


def assert_same(read: Episodes, written: list[Reference], exact_images: bool) -> None:
    """Check that a data set holds the written episodes; a video codec may change images a little."""
    assert len(read) == len(written)
    assert read.lengths.tolist() == [len(e.actions) for e in written]
    assert read.actions.dtype == np.float32
    for number, episode in enumerate(written):
        frames = read.frames(number)
        np.testing.assert_array_equal(read.actions[frames], episode.actions)
        np.testing.assert_array_equal(read.observation(STATE)[frames], episode.states)
        images = read.observation(CAMERA)[frames]
        assert images.dtype == np.uint8
        difference = np.abs(images.astype(int) - episode.images).mean()
        assert difference == 0 if exact_images else difference < 3


@pytest.mark.parametrize("name", WRITERS)
def test_reads_back_what_was_written(name: str, tmp_path: Path) -> None:
    several = name in SEVERAL_TASKS
    written = make_episodes(12, tasks=2 if several else 1)
    read = open_dataset(WRITERS[name](tmp_path, written))
    if name == "libero":  # read file by file
        written = sorted(written, key=lambda e: e.task)
    assert_same(read, written, exact_images=name in EXACT_IMAGES)
    assert read.fps == (FPS if name in KNOWS_FPS else None)
    if several:
        assert [read.task(e) for e in range(len(read))] == [e.task for e in written]


@pytest.mark.parametrize("name", WRITERS)
def test_every_column_can_be_sliced(name: str, tmp_path: Path) -> None:
    read = open_dataset(WRITERS[name](tmp_path, make_episodes(3)))
    for key in (STATE, CAMERA):
        column = read.observation(key)
        for part in (slice(1, 4), slice(None), slice(-3, None), slice(0, 0)):
            expected = np.arange(read.num_frames)[part]
            np.testing.assert_array_equal(column[part], column[expected])


@pytest.mark.parametrize("name", WRITERS)
def test_images_come_in_any_order_and_repeated(name: str, tmp_path: Path) -> None:
    written = make_episodes(6)
    images = open_dataset(WRITERS[name](tmp_path, written)).observation(CAMERA)
    truth = np.concatenate([e.images for e in written])
    frames = np.random.default_rng(0).integers(0, len(truth), 40)
    difference = np.abs(images[frames].astype(int) - truth[frames]).mean(axis=(1, 2, 3))
    assert difference.max() == 0 if name in EXACT_IMAGES else difference.max() < 3


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("cameras", ["image", "video"])
def test_converts_to_lerobot(name: str, cameras: str, tmp_path: Path) -> None:
    written = make_episodes(4)
    source = WRITERS[name](tmp_path / "in" if name.startswith("lerobot") else tmp_path, written)
    convert_dataset(source, tmp_path / "out", cameras=cameras, fps=FPS)  # type: ignore[arg-type]
    exact = cameras == "image" and name in EXACT_IMAGES
    assert_same(open_dataset(tmp_path / "out"), written, exact_images=exact)


def test_filter_keys_and_splits_select_episodes(tmp_path: Path) -> None:
    written = make_episodes(5)
    path = write_robomimic(tmp_path / "set.hdf5", written)
    assert_same(open_dataset(path, subset="train"), written[::2], exact_images=True)
    with pytest.raises(UnknownName, match="Available: train"):
        open_dataset(path, subset="valid")


def _write_filter_keys(path: Path, written: list[Reference], **keys: list[int]) -> Path:
    """Write a robomimic file with these filter keys and no others."""
    write_robomimic(path, written)
    with h5py.File(path, "r+") as file:
        del file["mask"]
        for name, members in keys.items():
            file[f"mask/{name}"] = np.array([f"demo_{number}".encode() for number in members])
    return path


def test_filter_keys_become_splits(tmp_path: Path) -> None:
    written = make_episodes(4)
    source = _write_filter_keys(tmp_path / "set.hdf5", written, train=[0, 1], valid=[3, 2])
    out = tmp_path / "out"
    convert_dataset(source, out)
    assert {name: members.tolist() for name, members in open_dataset(out).subsets.items()} == {
        "train": [0, 1],
        "valid": [2, 3],
    }
    assert_same(open_dataset(out, subset="valid"), written[2:], exact_images=True)
    convert_dataset(source, tmp_path / "valid", subset="valid")
    assert {name: members.tolist() for name, members in open_dataset(tmp_path / "valid").subsets.items()} == {
        "valid": [0, 1]
    }
    write_lerobot(out, written[:1], exists="append")
    assert open_dataset(out).subsets["train"].tolist() == [0, 1]


def test_filter_keys_that_are_no_ranges_are_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = _write_filter_keys(tmp_path / "set.hdf5", make_episodes(4), train=[0, 2, 3], first=[0])
    convert_dataset(source, tmp_path / "out")
    assert f"note: train of {source} (HDF5): no range of episodes" in capsys.readouterr().err
    assert set(open_dataset(tmp_path / "out").subsets) == {"first"}


def test_filter_keys_of_several_files_are_joined(tmp_path: Path) -> None:
    written = make_episodes(6, tasks=2)
    read = open_dataset(write_libero(tmp_path / "set", written))
    assert read.subsets["train"].tolist() == [0, 2, 3, 5]


def test_demos_are_ordered_by_number_not_by_name(tmp_path: Path) -> None:
    written = make_episodes(12)
    assert_same(open_dataset(write_robomimic(tmp_path / "set.hdf5", written)), written, exact_images=True)


def test_float_images_in_unit_range_become_bytes(tmp_path: Path) -> None:
    written = make_episodes(3)
    unit = [Reference(e.task, e.actions, e.states, e.images / np.float32(255)) for e in written]
    assert_same(open_dataset(write_zarr(tmp_path / "set.zarr", unit)), written, exact_images=True)


def test_uncompressed_npz_is_memory_mapped(tmp_path: Path) -> None:
    actions = open_dataset(write_npz(tmp_path / "set.npz", make_episodes())).actions
    while isinstance(actions, np.ndarray) and not isinstance(actions, np.memmap):
        actions = actions.base  # type: ignore[assignment]
    assert isinstance(actions, np.memmap)


@pytest.mark.parametrize("name", ["robomimic", "lerobot-video", "lerobot-image"])
def test_a_replaced_file_is_read_anew(name: str, tmp_path: Path) -> None:
    for seed in (0, 1):
        written = make_episodes(3, seed=seed)
        if name == "robomimic":
            (tmp_path / "low_dim.hdf5").unlink(missing_ok=True)
            path = WRITERS[name](tmp_path, written)
        else:
            path = write_lerobot(tmp_path / "set", written, name.removeprefix("lerobot-"), exists="overwrite")
        assert_same(open_dataset(path), written, exact_images=name in EXACT_IMAGES)


def test_unknown_paths_say_what_is_readable(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UnknownFormat, match="no such file"):
        open_dataset(tmp_path / "absent")
    with pytest.raises(UnknownFormat, match=r"LeRobotDataset v3.0.*zarr.*hdf5.*npz"):
        open_dataset(tmp_path / "notes.txt")
    with pytest.raises(UnknownFormat):
        open_dataset(tmp_path)


def _odd_arrays() -> dict[str, np.ndarray]:
    """Return arrays, beside two cameras, that must neither be taken for colour images nor be lost."""
    generator = np.random.default_rng(0)
    return {
        "depth": generator.normal(size=(6, 4, 5, 1)).astype(np.float32),
        "features": generator.normal(size=(6, 4, 5, 3)).astype(np.float32),
        "millimetres": generator.integers(0, 2000, (6, 4, 5, 1)).astype(np.uint16),
        "front": np.full((6, 8, 8, 3), 10, np.uint8),
        "front_image": np.full((6, 8, 8, 3), 20, np.uint8),
        "flag": np.array([True, False] * 3),
    }


@pytest.mark.parametrize("name", ["hdf5", "zarr", "npz"])
def test_only_colour_images_are_cameras_and_no_two_share_a_name(name: str, tmp_path: Path) -> None:
    arrays = _odd_arrays()
    actions = np.zeros((6, 2), np.float32)
    if name == "hdf5":
        with h5py.File(tmp_path / "set.hdf5", "w") as file:
            file["data/demo_0/actions"] = actions
            for key, array in arrays.items():
                file[f"data/demo_0/obs/{key}"] = array
            file["data/demo_0/obs/note"] = "text"
            file["data/demo_0/obs/nested/deeper"] = actions
            file["data"].attrs["env_args"] = "null"
        path = tmp_path / "set.hdf5"
    elif name == "zarr":
        group = zarr.open_group(path := tmp_path / "set.zarr", mode="w")
        for key, array in {"data/action": actions, **{f"data/{k}": a for k, a in arrays.items()}}.items():
            group.create_array(key, data=array, config={"write_empty_chunks": True})
        group.create_array("meta/episode_ends", data=np.array([6]))
    else:
        path = tmp_path / "set.npz"
        np.savez(path, actions=actions, episode_ends=[6], note="text", scalar=3, fps=[30.0], tasks=b"pick", **arrays)  # type: ignore[arg-type]
    read = open_dataset(path)
    assert set(read.cameras) == {"observation.images.front", "observation.images.front_image"}
    for key, array in arrays.items():
        found = read.observation(f"observation.{'images.' if key.startswith('front') else ''}{key}")[np.arange(6)]
        np.testing.assert_array_equal(found.reshape(array.shape), array.astype(np.float32))
    if name == "npz":
        assert (read.fps, read.tasks) == (30.0, ("pick",))
    convert_dataset(path, tmp_path / "out", fps=10)
    copy = open_dataset(tmp_path / "out")
    for key in ("depth", "features", "millimetres"):
        found = copy.observation(f"observation.{key}")[np.arange(6)]
        np.testing.assert_array_equal(found, arrays[key].astype(np.float32))


def test_zipped_zarr_is_read_by_forked_workers(tmp_path: Path) -> None:
    read = open_dataset(write_zarr(tmp_path / "set.zarr.zip", make_episodes(20), "uint8"))
    frames = np.arange(len(read.actions))
    expected = int(read.observation(CAMERA)[frames].sum(dtype=np.int64))
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.map(_sum_images, [read] * 8) == [expected] * 8


def _sum_images(episodes: Episodes) -> int:
    """Return the sum of all pixels; at module level, so that another process finds it."""
    return int(episodes.observation(CAMERA)[np.arange(len(episodes.actions))].sum(dtype=np.int64))
