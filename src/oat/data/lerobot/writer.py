"""Writing LeRobotDataset v3.0: whole episodes go in, and the directory appears, complete, when the writer finishes."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oat.data.episodes import CameraStorage, Episodes, WhenExists, is_image
from oat.data.lerobot.columns import data_columns
from oat.data.lerobot.digests import write_digests
from oat.data.lerobot.existing import ExistingSet
from oat.data.lerobot.features import Features, check_features, check_values, describe_feature, stored_arrays
from oat.data.lerobot.files import (
    CHUNK_FILES,
    DATA_FILE_BYTES,
    DATA_PATH,
    VIDEO_FILE_BYTES,
    VIDEO_PATH,
    DataFiles,
    VideoFiles,
)
from oat.data.lerobot.metadata import VERSION, read_episode_table, read_info
from oat.data.lerobot.reader import is_lerobot, read_lerobot
from oat.data.lerobot.schemas import INDEX_DTYPES, data_schema, episode_schema, task_table
from oat.data.lerobot.splits import as_splits, read_splits
from oat.data.provenance import PROVENANCE_PATH
from oat.data.statistics import camera_statistics, vector_statistics
from oat.errors import DatasetExists, InvalidEpisode, InvalidOption
from oat.io.atomic import StagedDirectory, link_or_copy, new_file
from oat.io.write_errors import explain_write_errors

EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"

_EPISODE_CAMERA_FRAMES = 16  # enough for an episode's statistics, and episodes are many
_REWRITTEN = {
    "info.json",
    "stats.json",
    "tasks.parquet",
    "provenance.json",
    "digests.json",
}  # in meta/, when a set is continued


class LeRobotWriter:
    """Collect episodes into a LeRobotDataset v3.0; use it in a `with` block, which finishes or discards it.

    The features are those of the first episode (or of the set appended to). An invalid episode is refused before
    anything of it is written, so the writer stays usable.
    """

    def __init__(
        self,
        path: str | Path,
        fps: float,
        *,
        cameras: CameraStorage = "video",
        exists: WhenExists = "refuse",
        robot_type: str | None = None,
        action_names: tuple[str, ...] = (),
    ) -> None:
        self.path = Path(path).expanduser()
        self.fps = float(fps)
        self.cameras = cameras
        if not 0 < self.fps < float("inf"):
            raise InvalidOption(f"fps must be a positive number, got {fps}")
        # From here on the target is ours: what is read of it now is what is continued and replaced in the end.
        self._staging = StagedDirectory(self.path)
        self._closed = False
        try:
            self._existing = self._check_target(exists)
        except BaseException:
            self._staging.discard()
            raise
        self._features = self._existing.features
        self._tasks = {task: number for number, task in enumerate(self._existing.tasks)}
        self._provenance = list(self._existing.provenance)
        self._episode_rows: list[dict[str, Any]] = []
        self._robot_type = robot_type
        self._action_names = action_names
        self._splits: dict[str, str] | None = None
        self._data: DataFiles | None = None
        self._videos: dict[str, VideoFiles] = {}

    def _check_target(self, exists: WhenExists) -> ExistingSet:
        """Return what is continued at the target; raise `DatasetExists` if it holds what must not be replaced."""
        if not self.path.exists():
            return ExistingSet()
        if exists == "refuse":
            raise DatasetExists(f"{self.path} exists; choose another path, or say to append to it or to overwrite it")
        free = self.path.is_dir() and not any(self.path.iterdir())
        if exists == "overwrite" and not free and not is_lerobot(self.path):
            raise DatasetExists(
                f"{self.path} exists and is not a LeRobot data set; it is not overwritten, remove it first"
            )
        return ExistingSet.read(self.path, self.fps) if exists == "append" else ExistingSet()

    @property
    def _root(self) -> Path:
        """Return the directory that is being built beside the target."""
        return self._staging.path

    @property
    def num_episodes(self) -> int:
        """Return how many episodes the set has so far, with those it had before."""
        return self._existing.episodes + len(self._episode_rows)

    @property
    def num_frames(self) -> int:
        """Return how many frames the set has so far, with those it had before."""
        return self._episode_rows[-1]["dataset_to_index"] if self._episode_rows else self._existing.frames

    def record_provenance(self, entry: dict[str, Any]) -> None:
        """Add an entry that says how the added episodes came about; it is stored with the data set."""
        self._provenance.append(entry)

    def record_subsets(self, subsets: Mapping[str, np.ndarray]) -> list[str]:
        """Store named groups of the added episodes, by number, as splits; by default `train` is all of them.

        Return the names of the groups that LeRobot cannot express: a split is one range of episodes.
        """
        before = read_splits(self._existing.info, self._existing.episodes)
        added = {name: self._existing.episodes + members for name, members in subsets.items()}
        groups = {name: np.append(before.get(name, members[:0]), members) for name, members in added.items()}
        self._splits, scattered = as_splits(groups)
        return scattered

    def add_episode(self, task: str, actions: np.ndarray, observations: Mapping[str, np.ndarray] | None = None) -> None:
        """Append one episode: actions (T, D) and, for each key, vectors (T, …) or images (T, height, width, 3)."""
        values, features = self.check_episode(task, actions, observations or {})
        with explain_write_errors(self.path):
            if self._data is None:  # nothing is created before the first sound episode
                self._features = self._features or features
                self._open_files()
            self._write_episode(task, values)

    def check_episode(
        self, task: str, actions: np.ndarray, observations: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], Features]:
        """Return the arrays to be stored and their features; raise `InvalidEpisode` if they do not fit the set."""
        if self._closed:
            raise InvalidOption(f"{self.path}: this writer is finished; open another one to append")
        episode = f"{self.path}: episode {self.num_episodes}"
        values = stored_arrays(episode, task, actions, observations)
        names = list(self._action_names) or None
        features = {
            key: describe_feature(array, self.cameras, self.fps, names if key == "action" else None)
            for key, array in values.items()
        }
        check_values(episode, values)
        check_features(episode, features, self._features or features)
        return values, features

    def _open_files(self) -> None:
        """Begin the new directory; one that continues a set shares its finished files and leaves the set unchanged."""
        self._staging.check()  # before anything of it is shared
        if self._existing.info:
            for file in sorted(self.path.rglob("*")):
                if file.is_file() and not (file.parent == self.path / "meta" and file.name in _REWRITTEN):
                    link_or_copy(file, self._root / file.relative_to(self.path))
        self._data = DataFiles(self._root, self._existing.next_file, data_schema(self._features))
        for key, feature in self._features.items():
            if feature["dtype"] == "video":
                self._videos[key] = VideoFiles(self._root, self._existing.next_file, key, self.fps, feature["shape"])

    def _write_episode(self, task: str, values: Mapping[str, np.ndarray]) -> None:
        """Append an episode's rows and frames to the files, and remember its row of `meta/episodes`."""
        assert self._data is not None
        length = len(values["action"])
        first = self.num_frames
        task_index = self._tasks.setdefault(task, len(self._tasks))
        indices: dict[str, np.ndarray] = {
            "timestamp": (np.arange(length) / self.fps).astype(np.float32),
            "frame_index": np.arange(length),
            "episode_index": np.full(length, self.num_episodes),
            "index": first + np.arange(length),
            "task_index": np.full(length, task_index),
        }
        row: dict[str, Any] = {"episode_index": self.num_episodes, "tasks": [task], "length": length}
        row |= {"dataset_from_index": first, "dataset_to_index": first + length}
        for key, videos in self._videos.items():
            row |= videos.add(values[key])
        columns = {key: values[key] for key in self._features if key not in self._videos}
        row |= self._data.add(columns | indices)
        self._episode_rows.append(row | _episode_statistics({**values, **indices}))

    def finish(self) -> None:
        """Write the metadata and put the directory in its place."""
        if self._closed or self._data is None:
            raise InvalidEpisode(f"{self.path}: no episode was added")
        with explain_write_errors(self.path):
            self._data.close()
            for videos in self._videos.values():
                videos.close()
            self._write_metadata()
            write_digests(self._root, self.path if self._existing.info else None)
        self._staging.commit()
        self._closed = True

    def discard(self) -> None:
        """Remove everything written so far; what was at the target stays."""
        self._closed = True
        for videos in self._videos.values():
            videos.abandon()
        if self._data is not None:
            self._data.abandon()
        self._staging.discard()

    def _write_metadata(self) -> None:
        """Write the tables of episodes and tasks, info.json, the statistics and the record of provenance."""
        file = dict(zip(("chunk_index", "file_index"), divmod(self._existing.next_file, CHUNK_FILES), strict=True))
        rows = [row | {f"meta/episodes/{name}": index for name, index in file.items()} for row in self._episode_rows]
        # LeRobot needs one schema in all files, so an appended file has the columns of those before it.
        schema = self._existing.episode_schema or episode_schema(self._features)
        _write_table(self._root / EPISODES_PATH.format(**file), pa.Table.from_pylist(rows, schema))
        _write_table(self._root / "meta" / "tasks.parquet", task_table(list(self._tasks)))
        index_features = {k: {"dtype": d, "shape": [1], "names": None} for k, d in INDEX_DTYPES.items()}
        defaults = {
            "codebase_version": VERSION,
            "robot_type": self._robot_type,
            "chunks_size": CHUNK_FILES,
            "data_files_size_in_mb": DATA_FILE_BYTES // 2**20,
            "video_files_size_in_mb": VIDEO_FILE_BYTES // 2**20,
            "fps": int(self.fps) if self.fps.is_integer() else self.fps,
            "splits": {},
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH if self._videos else None,
            "features": self._features | index_features,
        }
        info = {**defaults, **self._existing.info}
        if self._splits is None:
            self.record_subsets({"train": np.arange(len(self._episode_rows))})
        info["splits"] = {**info["splits"], **(self._splits or {})}
        info |= {"total_episodes": self.num_episodes, "total_frames": self.num_frames, "total_tasks": len(self._tasks)}
        if self._provenance:
            new_file(self._root / PROVENANCE_PATH).write_text(json.dumps(self._provenance, indent=4))
        new_file(self._root / "meta" / "info.json").write_text(json.dumps(info, indent=4, ensure_ascii=False))
        # Last, because the statistics are read back from the set as it now is, which info.json describes.
        new_file(self._root / "meta" / "stats.json").write_text(json.dumps(_set_statistics(self._root), indent=4))

    def __enter__(self) -> "LeRobotWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.discard()


def _write_table(path: Path, table: pa.Table) -> None:
    pq.write_table(table, new_file(path), write_page_checksum=True)


def _episode_statistics(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the columns of `meta/episodes` that hold an episode's own statistics."""
    columns: dict[str, Any] = {}
    for key, array in arrays.items():
        if is_image(array):
            statistics = camera_statistics(array, _EPISODE_CAMERA_FRAMES)
        else:
            statistics = vector_statistics([array], len(array))
        columns |= {f"stats/{key}/{name}": value for name, value in statistics.items()}
    return columns


def _set_statistics(root: Path) -> dict[str, Any]:
    """Return the contents of `meta/stats.json`, computed from the frames on disk, with those of earlier episodes."""
    info = read_info(root)
    columns = data_columns(root, info, read_episode_table(root))
    observations = read_lerobot(root).observations
    statistics = {}
    for key in info["features"]:
        if key in observations and is_image(observations[key]):
            statistics[key] = camera_statistics(observations[key])
        else:
            statistics[key] = vector_statistics(columns.blocks(key), columns.frames)
    return statistics


def copy_episode(writer: LeRobotWriter, episodes: Episodes, number: int) -> None:
    """Copy one episode of an open set into the writer."""
    frames = episodes.frames(number)
    observations = {key: values[frames] for key, values in episodes.observations.items()}
    writer.add_episode(episodes.task(number), episodes.actions[frames], observations)
