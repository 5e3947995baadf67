"""The writer follows LeRobotDataset v3.0 to the letter, appends, and leaves a complete set or none."""

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oat.data.episodes import STATE, open_dataset
from oat.data.lerobot import LeRobotWriter
from oat.data.lerobot import files as lerobot_files
from oat.errors import DatasetExists, InvalidEpisode, InvalidOption, UnsupportedVersion, WriteFailed
from tests.data.test_formats import assert_same
from tests.datasets import CAMERA, FPS, make_episodes, write_lerobot


def test_info_json_has_the_fields_of_v3(tmp_path: Path) -> None:
    written = make_episodes(4, tasks=2)
    info = json.loads((write_lerobot(tmp_path / "set", written, "video") / "meta" / "info.json").read_text())
    frames = sum(len(e.actions) for e in written)
    assert info["codebase_version"] == "v3.0"
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (4, frames, 2)
    assert (info["chunks_size"], info["data_files_size_in_mb"], info["video_files_size_in_mb"]) == (1000, 100, 200)
    assert info["fps"] == 20
    assert info["splits"] == {"train": "0:4"}
    assert info["data_path"] == "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    assert info["video_path"] == "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    assert info["features"]["action"] == {"dtype": "float32", "shape": [3], "names": None}
    assert info["features"][CAMERA]["dtype"] == "video"
    assert info["features"][CAMERA]["shape"] == [32, 48, 3]
    for key in ("frame_index", "episode_index", "index", "task_index"):
        assert info["features"][key] == {"dtype": "int64", "shape": [1], "names": None}
    assert info["features"]["timestamp"] == {"dtype": "float32", "shape": [1], "names": None}


def test_data_files_have_the_columns_of_v3(tmp_path: Path) -> None:
    written = make_episodes(4, tasks=2)
    path = write_lerobot(tmp_path / "set", written, "image")
    table = pq.read_table(path / "data/chunk-000/file-000.parquet")
    assert table.schema.field("action").type == pa.list_(pa.float32(), 3)
    assert table.schema.field(STATE).type == pa.list_(pa.float32(), 4)
    assert table.schema.field(CAMERA).type == pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    assert table.schema.field("timestamp").type == pa.float32()
    lengths = [len(e.actions) for e in written]
    assert table["index"].to_pylist() == list(range(sum(lengths)))
    assert table["frame_index"].to_pylist() == [t for n in lengths for t in range(n)]
    assert table["episode_index"].to_pylist() == [e for e, n in enumerate(lengths) for _ in range(n)]
    assert table["task_index"].to_pylist() == [e % 2 for e, n in enumerate(lengths) for _ in range(n)]
    expected = np.array([t / FPS for n in lengths for t in range(n)], np.float32)
    np.testing.assert_array_equal(table["timestamp"].to_numpy(), expected)
    described = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert described[CAMERA] == {"_type": "Image"}
    assert described["action"]["length"] == 3


def test_video_features_have_no_column(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(2), "video")
    assert CAMERA not in pq.read_schema(path / "data/chunk-000/file-000.parquet").names
    assert (path / f"videos/{CAMERA}/chunk-000/file-000.mp4").exists()


def test_episode_and_task_tables(tmp_path: Path) -> None:
    written = make_episodes(4, tasks=2)
    path = write_lerobot(tmp_path / "set", written, "video")
    table = pq.read_table(path / "meta/episodes/chunk-000/file-000.parquet")
    ends = np.cumsum([len(e.actions) for e in written])
    assert table["dataset_to_index"].to_pylist() == ends.tolist()
    assert table["dataset_from_index"].to_pylist() == [0, *ends[:-1].tolist()]
    assert table["tasks"].to_pylist() == [[e.task] for e in written]
    np.testing.assert_allclose(table[f"videos/{CAMERA}/to_timestamp"].to_numpy(), ends / FPS)
    assert {"meta/episodes/chunk_index", "meta/episodes/file_index", "data/chunk_index"} <= set(table.column_names)
    for key in ("action", STATE, CAMERA, "timestamp", "index"):
        assert {f"stats/{key}/{name}" for name in ("min", "max", "mean", "std", "count", "q01", "q99")} <= set(
            table.column_names
        )
    tasks = pq.read_table(path / "meta/tasks.parquet")
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]
    assert tasks.to_pydict() == {"task_index": [0, 1], "task": ["task 0", "task 1"]}


def test_statistics_are_those_of_the_frames(tmp_path: Path) -> None:
    written = make_episodes(6)
    path = write_lerobot(tmp_path / "set", written)
    statistics = json.loads((path / "meta/stats.json").read_text())
    actions = np.concatenate([e.actions for e in written])
    for name, value in {
        "min": actions.min(0),
        "max": actions.max(0),
        "mean": actions.mean(0),
        "std": actions.std(0),
        "q01": np.quantile(actions, 0.01, axis=0),
        "q50": np.median(actions, axis=0),
        "q99": np.quantile(actions, 0.99, axis=0),
    }.items():
        np.testing.assert_allclose(statistics["action"][name], value, rtol=1e-5, atol=1e-6)
    assert statistics["action"]["count"] == [len(actions)]
    assert np.shape(statistics[CAMERA]["mean"]) == (3, 1, 1)
    images = np.concatenate([e.images for e in written]) / 255
    np.testing.assert_allclose(np.ravel(statistics[CAMERA]["mean"]), images.mean((0, 1, 2)), atol=1e-3)


def test_features_of_any_shape_round_trip(tmp_path: Path) -> None:
    values: dict[str, np.ndarray] = {
        "observation.scalar": np.arange(5),
        "observation.points": np.random.default_rng(0).normal(size=(5, 3, 2)).astype(np.float32),
        "observation.images.odd": np.full((5, 33, 47, 3), 90, np.uint8),  # odd sides
    }
    with LeRobotWriter(tmp_path / "set", 29.97) as writer:
        writer.add_episode("t", np.zeros((5, 1)), values)  # a single action dimension
    read = open_dataset(tmp_path / "set")
    assert read.fps == 29.97
    assert read.actions.shape == (5, 1)
    for key, value in values.items():
        found = read.observation(key)[np.arange(5)]
        assert np.abs(found.reshape(value.shape) - value.astype(np.float32)).max() <= (3 if value.ndim == 4 else 0)


def test_files_are_split_at_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lerobot_files, "_GROUP_ROWS", 30)
    monkeypatch.setattr(lerobot_files, "DATA_FILE_BYTES", 4000)
    monkeypatch.setattr(lerobot_files, "VIDEO_FILE_BYTES", 2000)
    monkeypatch.setattr(lerobot_files, "CHUNK_FILES", 2)
    written = make_episodes(30)
    path = write_lerobot(tmp_path / "set", written, "video")
    assert len(list((path / "data").glob("chunk-*/*.parquet"))) > 2
    assert (path / "data/chunk-001/file-000.parquet").exists()
    assert len(list((path / "videos").rglob("*.mp4"))) > 2
    assert_same(open_dataset(path), written, exact_images=False)


@pytest.mark.parametrize("cameras", ["image", "video"])
def test_appending_keeps_what_was_there(cameras: str, tmp_path: Path) -> None:
    written = make_episodes(6, tasks=3)
    path = write_lerobot(tmp_path / "set", written[:2], cameras)
    (path / "README.md").write_text("a file of the user's")
    for first in (2, 4):
        write_lerobot(path, written[first : first + 2], cameras, exists="append")
    read = open_dataset(path)
    assert_same(read, written, exact_images=cameras == "image")
    assert read.tasks == ("task 0", "task 1", "task 2")
    assert (path / "README.md").read_text() == "a file of the user's"
    schemas = [pq.read_schema(f) for f in sorted((path / "meta/episodes").rglob("*.parquet"))]
    assert len(schemas) == 3
    assert all(schema.equals(schemas[0]) for schema in schemas)
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_existing_sets_are_never_overwritten_unasked(tmp_path: Path) -> None:
    written = make_episodes(2)
    path = write_lerobot(tmp_path / "set", written)
    with pytest.raises(DatasetExists, match="append"):
        LeRobotWriter(path, FPS)
    with pytest.raises(InvalidOption, match="20 frames per second, cannot append at 30"):
        LeRobotWriter(path, 30, exists="append")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "precious.txt").write_text("")
    with pytest.raises(DatasetExists, match="not a LeRobot data set"):
        LeRobotWriter(tmp_path / "notes", FPS, exists="overwrite")
    with pytest.raises(DatasetExists, match="not a LeRobot data set"):
        LeRobotWriter(tmp_path / "notes" / "precious.txt", FPS, exists="overwrite")
    assert_same(open_dataset(path), written, exact_images=True)
    assert {p.name for p in tmp_path.iterdir()} == {"set", "notes"}


def test_an_error_in_the_block_leaves_nothing(tmp_path: Path) -> None:
    writer = LeRobotWriter(tmp_path / "set", FPS)
    writer.add_episode("t", np.zeros((3, 2)), {CAMERA: np.zeros((3, 16, 16, 3), np.uint8)})
    with pytest.raises(RuntimeError, match="boom"), writer:
        raise RuntimeError("boom")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("actions", "observations", "message"),
    [
        (np.zeros((0, 3)), {STATE: np.zeros((0, 4))}, "actions must be"),
        (np.zeros(3), {STATE: np.zeros((3, 4))}, "actions must be"),
        (np.full((2, 3), np.nan), {STATE: np.zeros((2, 4))}, "action is not finite at step 0"),
        (np.zeros((2, 3)), {STATE: np.array([[0.0] * 4, [np.inf] * 4])}, "observation.state is not finite at step 1"),
        (np.zeros((2, 3)), {STATE: np.zeros((3, 4))}, "observation.state has 3 frames, actions 2"),
        (np.zeros((2, 2)), {STATE: np.zeros((2, 4))}, r"action has shape \[2\], the set \[3\]"),
        (np.zeros((2, 3)), {}, "the set has"),
        (np.zeros((2, 3)), {STATE: np.array(["a", "b"])}, "must be numbers per frame"),
        (np.zeros((2, 3)), {STATE: np.zeros((2, 0))}, "must be numbers per frame"),
        (np.zeros((2, 3)), {"state": np.zeros((2, 4))}, "named observation"),
    ],
)
def test_invalid_episodes_are_refused_and_the_writer_goes_on(
    actions: np.ndarray, observations: dict[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    with LeRobotWriter(tmp_path / "set", FPS) as writer:
        writer.add_episode("t", np.zeros((2, 3)), {STATE: np.zeros((2, 4))})
        with pytest.raises(InvalidEpisode, match=message):
            writer.add_episode("t", actions, observations)
        writer.add_episode("t", np.ones((2, 3)), {STATE: np.zeros((2, 4))})
    assert open_dataset(tmp_path / "set").lengths.tolist() == [2, 2]


def test_older_versions_are_refused_with_directions(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path / "set", make_episodes(1))
    info = json.loads((path / "meta/info.json").read_text())
    (path / "meta/info.json").write_text(json.dumps(info | {"codebase_version": "v2.1"}))
    with pytest.raises(UnsupportedVersion, match=r"v2\.1.*convert_dataset_v21_to_v30"):
        open_dataset(path)


def _write_forever(path: Path) -> None:
    """Add episodes until the process is killed."""
    with LeRobotWriter(path, FPS, exists="append") as writer:
        while True:
            writer.add_episode(
                "t", np.zeros((50, 3)), {STATE: np.zeros((50, 4)), CAMERA: np.zeros((50, 32, 48, 3), np.uint8)}
            )


def test_a_killed_append_leaves_the_old_set_and_is_cleaned_up(tmp_path: Path) -> None:
    written = make_episodes(3)
    path = write_lerobot(tmp_path / "set", written, "video")
    process = multiprocessing.get_context("spawn").Process(target=_write_forever, args=(path,))
    process.start()
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".set.partial-*/videos/*/*/file-001.mp4")):
        assert time.monotonic() < deadline
        assert process.is_alive()
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert len(list(tmp_path.iterdir())) == 3  # the set and what the killed writer left: files and a lock
    assert_same(open_dataset(path), written, exact_images=False)
    write_lerobot(path, make_episodes(1), "video", exists="append")
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


_FILL_DISK = """
import resource, signal, sys, numpy as np
from pathlib import Path
from oat.data.lerobot import LeRobotWriter
from oat.errors import WriteFailed
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))  # files cannot grow past this: the write call fails
generator = np.random.default_rng(0)
try:
    with LeRobotWriter(Path(sys.argv[1]), 20, exists="append", cameras=sys.argv[2]) as writer:
        for _ in range(60):
            images = generator.integers(0, 255, (20, 32, 48, 3), np.uint8)
            writer.add_episode("t", generator.normal(size=(20, 3)), {
                "observation.state": generator.normal(size=(20, 4)), "observation.images.front": images})
except WriteFailed as error:
    print(error)
    sys.exit(7)
"""


@pytest.mark.parametrize("cameras", ["image", "video"])
def test_a_full_disk_is_reported_and_loses_nothing(cameras: str, tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    written = make_episodes(3)
    path = write_lerobot(tmp_path / "set", written, cameras)
    command = [sys.executable, "-c", _FILL_DISK, str(path), cameras]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    assert "the disk is full" in done.stdout
    assert_same(open_dataset(path), written, exact_images=cameras == "image")
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteFailed, match="choose another place"):
        write_lerobot(tmp_path / "file" / "set", make_episodes(1))


def test_a_finished_writer_takes_no_more(tmp_path: Path) -> None:
    with LeRobotWriter(tmp_path / "set", FPS) as writer:
        writer.add_episode("t", np.zeros((2, 3)))
        with pytest.raises(InvalidEpisode, match="must be text"):
            writer.add_episode("\ud800", np.zeros((2, 3)))
    with pytest.raises(InvalidOption, match="is finished"):
        writer.add_episode("t", np.zeros((2, 3)))
    assert len(open_dataset(tmp_path / "set")) == 1


def test_many_short_episodes_are_written_in_linear_time(tmp_path: Path) -> None:
    with LeRobotWriter(tmp_path / "set", FPS) as writer:
        times = []
        for _ in range(4):
            begin = time.perf_counter()
            for _ in range(200):
                writer.add_episode("t", np.zeros((1, 3)))
            times.append(time.perf_counter() - begin)
    assert min(times[2:]) < 3 * min(times[:2])
