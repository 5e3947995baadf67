"""Broken data sets get a typed error that says what and where; none is read as if it were sound."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from oat.data.episodes import STATE, Episodes, open_dataset, parse_episode_ranges
from oat.errors import (
    CorruptDataset,
    DatasetError,
    InvalidEpisode,
    InvalidOption,
    MissingKey,
    UnknownFormat,
    UnknownName,
)
from tests.datasets import CAMERA, WRITERS, Reference, make_episodes, write_lerobot, write_robomimic, write_zarr


def read_everything(path: Path) -> None:
    """Open a data set and read every frame of every observation."""
    episodes = open_dataset(path)
    for frames in episodes.observations.values():
        frames[np.arange(len(episodes.actions))]


def _files(path: Path) -> list[Path]:
    """Return all files of a data set, which may be one file or a directory."""
    return [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())


def _is_group(file: Path) -> bool:
    """Return whether a file only records that zarr's data/ or meta/ is a group, which the arrays say, too."""
    return file.name in (".zgroup", "zarr.json") and file.parent.name in ("data", "meta")


@pytest.mark.parametrize("name", WRITERS)
def test_every_truncated_file_is_noticed(name: str, tmp_path: Path) -> None:
    """Cut each file of the set in half, one at a time; files that are only for others to read do not matter."""
    path = WRITERS[name](tmp_path, make_episodes(6))
    unread = {"stats.json", ".zattrs", "provenance.json"}
    for file in _files(path):
        whole = file.read_bytes()
        if file.name in unread or _is_group(file):
            continue
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DatasetError) as caught:
            read_everything(path)
        assert tmp_path.name in str(caught.value), f"{file} names no place: {caught.value}"
        file.write_bytes(whole)
    read_everything(path)


@pytest.mark.parametrize("name", WRITERS)
def test_every_missing_file_is_noticed(name: str, tmp_path: Path) -> None:
    path = WRITERS[name](tmp_path, make_episodes(6, tasks=1))
    unread = {"stats.json", ".zattrs"}
    for file in _files(path):
        if file.name in unread or _is_group(file) or (name == "libero" and file.suffix == ".hdf5"):
            continue
        moved = file.rename(tmp_path / "moved")
        with pytest.raises(DatasetError):
            read_everything(path)
        moved.rename(file)
    read_everything(path)


@pytest.mark.parametrize("name", sorted(set(WRITERS) - {"lerobot-image", "lerobot-video"}))  # the writer refuses them
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_actions_are_refused_with_their_place(name: str, value: float, tmp_path: Path) -> None:
    episodes = make_episodes(4)
    bad = max(range(4), key=lambda e: len(episodes[e].actions))
    episodes[bad].actions[1, 2] = value
    path = WRITERS[name](tmp_path, episodes)
    with pytest.raises(InvalidEpisode, match=f"action dimension 2 is {value} in episode {bad}, step 1"):
        open_dataset(path)
    assert open_dataset(path, check=False).nonfinite_frames().tolist() == [
        sum(len(e.actions) for e in episodes[:bad]) + 1
    ]


def test_non_finite_actions_outside_the_chosen_episodes_do_not_matter(tmp_path: Path) -> None:
    episodes = make_episodes(5)
    episodes[1].actions[0, 0] = np.nan
    path = write_robomimic(tmp_path / "set.hdf5", episodes)
    assert len(open_dataset(path, subset="train")) == 3  # episodes 0, 2, 4


@pytest.mark.parametrize("name", ["robomimic", "zarr", "npz"])
def test_empty_episodes_are_refused(name: str, tmp_path: Path) -> None:
    episodes = make_episodes(3)
    e = episodes[1]
    episodes[1] = Reference(e.task, e.actions[:0], e.states[:0], e.images[:0])
    with pytest.raises(InvalidEpisode, match="episode 1 is empty"):
        open_dataset(WRITERS[name](tmp_path, episodes))


def test_a_set_without_episodes_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "set.hdf5", "w") as file:
        file.create_group("data")
    with pytest.raises(InvalidEpisode, match="no demonstrations"):
        open_dataset(tmp_path / "set.hdf5")
    np.savez(tmp_path / "set.npz", actions=np.zeros((0, 3)), episode_ends=np.zeros(0, int))
    with pytest.raises(InvalidEpisode):
        open_dataset(tmp_path / "set.npz")


def _damage(path: Path, change: Callable[[h5py.File], None]) -> Path:
    """Apply a change to an HDF5 file, and return its path."""
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def _replace(name: str, value: np.ndarray) -> Callable[[h5py.File], None]:
    """Return a change that puts another array in the place of one."""

    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = value

    return change


def _delete(name: str) -> Callable[[h5py.File], None]:
    """Return a change that removes an array or a group."""

    def change(file: h5py.File) -> None:
        del file[name]

    return change


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (_replace("data/demo_1/actions", np.zeros((2, 5))), InvalidEpisode, r"demo_1: actions has dimensions \(5,\)"),
        (_replace("data/demo_1/actions", np.zeros(4)), InvalidEpisode, r"demo_1: actions has dimensions \(\)"),
        (_replace("data/demo_0/actions", np.array(1.0)), InvalidEpisode, r"demo_0: actions must be .*, got \(\)"),
        (_replace("data/demo_0/actions", np.array(b"left")), InvalidEpisode, "demo_0: actions must be"),
        (_delete("data/demo_1/actions"), MissingKey, "data/demo_1 has no 'actions'"),
        (_delete("data/demo_1/obs/state"), MissingKey, "demo_1 lacks .*obs/state"),
        (_replace("data/demo_1/obs/state", np.zeros((99, 4))), InvalidEpisode, "obs/state has 99 frames, actions"),
        (_delete("data"), MissingKey, "no group 'data'"),
    ],
)
def test_inconsistent_hdf5_is_refused(
    change: Callable[[h5py.File], None], error: type[Exception], message: str, tmp_path: Path
) -> None:
    path = write_robomimic(tmp_path / "set.hdf5", make_episodes(3))
    with pytest.raises(error, match=message):
        open_dataset(_damage(path, change))


def test_text_among_numbers_is_refused(tmp_path: Path) -> None:
    def change(file: h5py.File) -> None:
        _replace("data/demo_1/actions", np.full(file["data/demo_1/actions"].shape, b"left"))(file)

    with pytest.raises(CorruptDataset, match=r"actions: must be numbers, got .* at row"):
        open_dataset(_damage(write_robomimic(tmp_path / "set.hdf5", make_episodes(3)), change))
    path = write_lerobot(tmp_path / "set", make_episodes(2))
    file = path / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    pq.write_table(table.set_column(0, "action", pa.array([["a", "b", "c"]] * len(table))), file)
    with pytest.raises(CorruptDataset, match="action: must be numbers"):
        open_dataset(path)


def test_odd_attributes_of_hdf5_do_not_matter(tmp_path: Path) -> None:
    def change(file: h5py.File) -> None:
        file["data"].attrs["env_args"] = json.dumps({"env_name": ["Lift"]})
        file["data"].attrs["problem_info"] = json.dumps({"language_instruction": ["put", 2]})

    path = _damage(write_robomimic(tmp_path / "set.hdf5", make_episodes(2)), change)
    assert open_dataset(path).tasks == ("put 2",)


def test_files_with_different_action_dimensions_are_refused(tmp_path: Path) -> None:
    write_robomimic(tmp_path / "a.hdf5", make_episodes(2, action_dim=3))
    write_robomimic(tmp_path / "b.hdf5", make_episodes(2, action_dim=7))
    with pytest.raises(InvalidEpisode, match=r"b\.hdf5.*\(7,\).*\(3,\) in .*a\.hdf5"):
        open_dataset(tmp_path)


def test_missing_zarr_chunks_are_not_read_as_zeros(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "set.zarr", make_episodes(6))
    next(f for f in (path / "data" / "action").iterdir() if f.name.startswith("1")).unlink()
    with pytest.raises(CorruptDataset, match="action has only"):
        open_dataset(path)


def test_zarr_without_the_required_arrays(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "set.zarr", make_episodes(2))
    shutil.rmtree(path / "data" / "action")
    with pytest.raises(MissingKey, match="data/action"):
        open_dataset(path)


def test_wrong_episode_ends_are_refused(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "set.zarr", make_episodes(2))
    zarr.open_array(path / "meta" / "episode_ends", mode="r+")[:] = np.array([1, 100])
    with pytest.raises(InvalidEpisode, match="episode_ends must increase"):
        open_dataset(path)
    np.savez(tmp_path / "set.npz", actions=np.zeros((5, 2)), episode_ends=[3, 4])
    with pytest.raises(InvalidEpisode, match="must increase up to 5"):
        open_dataset(tmp_path / "set.npz")


def test_npz_without_actions(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", action=np.zeros((5, 2)), episode_ends=[5])
    with pytest.raises(MissingKey, match=r"no array 'actions'; it has \['action', 'episode_ends'\]"):
        open_dataset(tmp_path / "set.npz")


def test_members_of_one_name_in_several_folders_are_several_arrays(tmp_path: Path) -> None:
    position = np.zeros((5, 2), np.float32)
    following = np.ones((5, 2), np.float32)
    arrays = {"obs/pos": position, "next_obs/pos": following, "actions": np.zeros((5, 2)), "episode_ends": [5]}
    np.savez(tmp_path / "set.npz", **arrays)  # type: ignore[arg-type]
    read = open_dataset(tmp_path / "set.npz")
    np.testing.assert_array_equal(read.observation("observation.obs.pos")[np.arange(5)], position)
    np.testing.assert_array_equal(read.observation("observation.next_obs.pos")[np.arange(5)], following)


@pytest.mark.parametrize(("first", "second"), [("obs/pos", "obs.pos"), ("state", "observation.state")])
def test_two_arrays_by_one_name_are_refused(first: str, second: str, tmp_path: Path) -> None:
    arrays = {first: np.zeros((5, 2)), second: np.ones((5, 2)), "actions": np.zeros((5, 2)), "episode_ends": [5]}
    np.savez(tmp_path / "set.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(CorruptDataset, match=f"more than one array is called .*{second}"):
        open_dataset(tmp_path / "set.npz")


def test_two_arrays_by_one_name_are_refused_in_every_format(tmp_path: Path) -> None:
    written = make_episodes(2)
    buffer = write_zarr(tmp_path / "set.zarr", written)
    shutil.copytree(buffer / "data" / "state", buffer / "data" / "observation.state")

    def repeat(file: h5py.File) -> None:
        for number in range(len(written)):
            file.copy(f"data/demo_{number}/obs/state", f"data/demo_{number}/obs/observation.state")

    for path in (buffer, _damage(write_robomimic(tmp_path / "set.hdf5", written), repeat)):
        with pytest.raises(CorruptDataset, match=r"more than one array is called observation\.state"):
            open_dataset(path)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"actions": 1.0}, InvalidEpisode, r"actions must be numbers \(frames, dimensions\), got float64 \(\)"),
        ({"actions": ["left"]}, InvalidEpisode, "actions must be numbers"),
        ({"episode_ends": 5}, InvalidEpisode, r"must increase up to 5 \(the frames\), got int64 \(\) with \[5\]"),
        ({"episode_ends": [[5]]}, InvalidEpisode, r"must increase up to 5 .* \(1, 1\)"),
        ({"episode_ends": ["5"]}, InvalidEpisode, "must increase up to 5 .* <U1"),
        ({"episode_ends": [np.inf, 5]}, InvalidEpisode, "must increase up to 5"),
        ({"episode_ends": np.array([4, 2, 5], np.uint64)}, InvalidEpisode, "must increase up to 5"),
        ({"fps": []}, CorruptDataset, "fps must be one positive number"),
        ({"fps": "fast"}, CorruptDataset, "fps must be one positive number, got .*fast"),
        ({"fps": [0.0]}, CorruptDataset, "fps must be one positive number"),
        ({"tasks": b"\xff\xfe"}, CorruptDataset, "tasks must be text in UTF-8"),
        ({"tasks": ["a", "b"]}, InvalidEpisode, "2 tasks for 1 episodes"),
    ],
)
def test_npz_of_other_types_and_shapes_is_refused(
    changes: dict[str, object], error: type[Exception], message: str, tmp_path: Path
) -> None:
    arrays = {"actions": np.zeros((5, 2)), "episode_ends": [5]} | changes
    np.savez(tmp_path / "set.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(error, match=message):
        open_dataset(tmp_path / "set.npz")


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", actions=np.array([{"a": 1}], dtype=object), episode_ends=[1])
    with pytest.raises(CorruptDataset, match="pickle"):
        open_dataset(tmp_path / "set.npz")


def _edit_info(path: Path, **changes: object) -> None:
    """Overwrite entries of a LeRobot set's info.json."""
    file = path / "meta/info.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_lerobot_counts_must_agree(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(3))
    _edit_info(path, total_frames=7)
    with pytest.raises(CorruptDataset, match=r"info\.json counts 3 episodes and 7 frames"):
        open_dataset(path)


def test_lerobot_rows_must_be_as_many_as_announced(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(3))
    file = path / "data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(file).slice(1), file)
    with pytest.raises(CorruptDataset, match=r"action: found .* rows"):
        open_dataset(path)


def test_lerobot_without_actions_names_what_there_is(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2))
    info = json.loads((path / "meta/info.json").read_text())
    del info["features"]["action"]
    _edit_info(path, features=info["features"])
    with pytest.raises(MissingKey, match=r"no feature 'action'; it has .*observation.state"):
        open_dataset(path)


def test_lerobot_column_of_another_width(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2))
    info = json.loads((path / "meta/info.json").read_text())
    info["features"]["action"]["shape"] = [5]
    _edit_info(path, features=info["features"])
    with pytest.raises(CorruptDataset, match=r"numbers in .* rows of shape \(5,\)"):
        open_dataset(path)


@pytest.mark.parametrize(
    ("key", "changes", "message"),
    [
        ("action", {"shape": None}, "its metadata is not that of LeRobot v3.0"),
        ("action", {"shape": ["three"]}, "its metadata is not that of LeRobot v3.0"),
        ("action", {"shape": [3, 1]}, r"actions must be \(frames, dimensions\), got shape \(3, 1\)"),
        (STATE, {"dtype": "video"}, "its metadata is not that of LeRobot v3.0"),
    ],
)
def test_lerobot_features_of_another_form(key: str, changes: dict[str, object], message: str, tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2))
    features = json.loads((path / "meta/info.json").read_text())["features"]
    features[key] |= changes
    _edit_info(path, features=features)
    with pytest.raises(DatasetError, match=message):
        open_dataset(path)


def test_lerobot_metadata_of_another_form(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2))
    _edit_info(path, data_path="data/{number}.parquet")
    with pytest.raises(CorruptDataset, match=r"'data/\{number\}\.parquet', which is not allowed"):
        open_dataset(path)
    _edit_info(path, features=["action"])
    with pytest.raises(CorruptDataset, match="features must be a mapping, got list"):
        open_dataset(path)


def test_lerobot_nulls_are_not_numbers(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2))
    file = path / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    nulls = pa.array([[None, 1.0, 2.0]] * len(table), pa.list_(pa.float32(), 3))
    pq.write_table(table.set_column(0, "action", nulls), file)
    with pytest.raises(CorruptDataset, match="numbers in"):
        open_dataset(path)


def test_an_unfinished_set_does_not_open(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(1))
    unfinished = path.rename(tmp_path / ".set.partial-host-1-abcd")
    with pytest.raises(UnknownFormat, match="unfinished"):
        open_dataset(unfinished)


def test_unknown_observations_name_the_known_ones(tmp_path: Path) -> None:
    episodes = open_dataset(write_lerobot(tmp_path / "set", make_episodes(1)))
    with pytest.raises(UnknownName, match=f"Did you mean '{STATE}'"):
        episodes.observation("observation.sate")


def test_observations_of_another_length_are_refused() -> None:
    episodes = Episodes.from_arrays(np.zeros((4, 2), np.float32), [4], observations={CAMERA: np.zeros((3, 8, 8, 3))})
    with pytest.raises(InvalidEpisode, match="has 3 frames, actions 4"):
        episodes.check()


def test_episode_ranges() -> None:
    assert parse_episode_ranges("0:3,7,8:", 10).tolist() == [0, 1, 2, 7, 8, 9]
    assert parse_episode_ranges("-2:", 5).tolist() == [3, 4]
    for wrong in ("a", "1:2:3:4", "20", ""):
        with pytest.raises(InvalidOption, match="like 0:50,60"):
            parse_episode_ranges(wrong, 10)
    with pytest.raises(InvalidOption, match="must be 0…0"):
        Episodes.from_arrays(np.zeros((4, 2), np.float32), [4]).select([3])
