"""Writing LeRobotDataset v3.0: whole episodes go in, and the directory appears, complete, when the writer finishes."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oat.atomic import StagedDirectory, explain_write_errors, link_or_copy
from oat.data.episodes import Episodes, is_image
from oat.data.lerobot import (
    INDEX_FEATURES,
    VERSION,
    data_columns,
    read_episode_table,
    read_info,
    read_lerobot,
    read_tasks,
)
from oat.data.statistics import camera_statistics, summarize, vector_statistics
from oat.data.video import CODEC, VideoEncoder, pixel_format
from oat.errors import DatasetExists, InvalidEpisode, InvalidOption
from oat.extras import import_extra

CHUNK_FILES = 1000
DATA_FILE_BYTES = 100 * 2**20
VIDEO_FILE_BYTES = 200 * 2**20
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
PROVENANCE_PATH = "meta/provenance.json"
"""Ours, beside LeRobot's files: a list with one entry per collection or conversion that added episodes."""

_GROUP_ROWS, _GROUP_BYTES = 8192, 32 * 2**20  # a row group is written when it holds this much
_INDEX_DTYPES = dict.fromkeys(INDEX_FEATURES, "int64") | {"timestamp": "float32"}

CameraStorage = Literal["video", "image"]
WhenExists = Literal["refuse", "append", "overwrite"]


class LeRobotWriter:
    """Collects episodes into a LeRobotDataset v3.0; use it in a `with` block, which finishes or discards it.

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
        provenance: dict[str, Any] | None = None,
    ) -> None:
        self.path, self.fps, self.cameras = Path(path), float(fps), cameras
        if not self.fps > 0:
            raise InvalidOption(f"fps must be positive, got {fps}")
        self._features: dict[str, dict[str, Any]] = {}
        self._tasks: dict[str, int] = {}
        self._episode_rows: list[dict[str, Any]] = []
        self._first_episode = self._first_frame = 0
        self._next_file = 0
        self._robot_type, self._action_names = robot_type, action_names
        self._provenance = [provenance] if provenance else []
        existing = self._check_target(exists)
        self._staging = StagedDirectory(self.path)
        self._root = self._staging.path
        self._data: _ParquetFiles | None = None
        self._videos: dict[str, _VideoFiles] = {}
        if existing:
            self._adopt_existing()

    def _check_target(self, exists: WhenExists) -> bool:
        """Whether to continue the set that lies at the target."""
        if not self.path.exists() or exists == "overwrite":
            return False
        if exists == "refuse":
            raise DatasetExists(f"{self.path} exists; choose another path, or say to append to it or to overwrite it")
        read_lerobot(self.path)  # only a sound set is continued
        return True

    def _adopt_existing(self) -> None:
        """Share the finished files of the set and take over its counts; the set itself stays untouched."""
        info = read_info(self.path)
        if float(info["fps"]) != self.fps:
            raise InvalidOption(f"{self.path} has {info['fps']} frames per second, cannot append at {self.fps:g}")
        table = read_episode_table(self.path)
        for folder in ("data", "videos", "meta/episodes"):
            for file in sorted((self.path / folder).rglob("*")):
                if file.is_file():
                    link_or_copy(file, self._root / file.relative_to(self.path))
        self._features = {k: v for k, v in info["features"].items() if k not in INDEX_FEATURES}
        self._tasks = {task: number for number, task in enumerate(read_tasks(self.path))}
        self._first_episode, self._first_frame = int(info["total_episodes"]), int(info["total_frames"])
        self._robot_type = info.get("robot_type") or self._robot_type
        self._provenance = read_provenance(self.path) + self._provenance
        pairs = [c for c in table.column_names if c.endswith("/file_index")]
        chunks = [c.replace("/file_index", "/chunk_index") for c in pairs]
        used = [
            max(c * CHUNK_FILES + f for c, f in zip(table[chunk].to_pylist(), table[file].to_pylist(), strict=True))
            for chunk, file in zip(chunks, pairs, strict=True)
        ]
        self._next_file = max(used) + 1

    @property
    def num_episodes(self) -> int:
        return self._first_episode + len(self._episode_rows)

    @property
    def num_frames(self) -> int:
        return self._episode_rows[-1]["dataset_to_index"] if self._episode_rows else self._first_frame

    def add_episode(self, task: str, actions: np.ndarray, observations: Mapping[str, np.ndarray] | None = None) -> None:
        """Append one episode: actions (T, D) and, for each key, vectors (T, …) or images (T, height, width, 3)."""
        values = {"action": np.asarray(actions)} | {k: np.asarray(v) for k, v in (observations or {}).items()}
        values = {key: array if is_image(array) else array.astype(np.float32) for key, array in values.items()}
        features = {key: self._feature(key, array) for key, array in values.items()}
        self._check_episode(values, features)
        with explain_write_errors(self.path):
            if self._data is None:
                self._features = self._features or features
                self._open_files()
            self._write_episode(task, values)

    def _feature(self, key: str, array: np.ndarray) -> dict[str, Any]:
        """The entry of info.json that describes an array."""
        if is_image(array):
            if array.dtype != np.uint8 or array.shape[-1] != 3:
                raise InvalidEpisode(f"{key}: images must be uint8 (frames, height, width, 3), got {array.shape}")
            shape: list[int] = list(array.shape[1:])
            entry = {"dtype": self.cameras, "shape": shape, "names": ["height", "width", "channels"]}
            return entry | ({"info": self._video_info(*shape[:2])} if self.cameras == "video" else {})
        names = list(self._action_names) if key == "action" and self._action_names else None
        return {"dtype": "float32", "shape": list(array.shape[1:]) or [1], "names": names}

    def _video_info(self, height: int, width: int) -> dict[str, Any]:
        described = {"height": height, "width": width, "channels": 3, "codec": CODEC, "fps": self.fps}
        described |= {"pix_fmt": pixel_format(height, width), "is_depth_map": False}
        return {f"video.{key}": value for key, value in described.items()} | {"has_audio": False}

    def _check_episode(self, values: Mapping[str, np.ndarray], features: Mapping[str, dict[str, Any]]) -> None:
        where = f"{self.path}: episode {self.num_episodes}"
        if values["action"].ndim != 2 or len(values["action"]) == 0:
            raise InvalidEpisode(f"{where}: actions must be (steps ≥ 1, dimensions), got {values['action'].shape}")
        for key, array in values.items():
            if len(array) != len(values["action"]):
                raise InvalidEpisode(f"{where}: {key} has {len(array)} frames, actions {len(values['action'])}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise InvalidEpisode(f"{where}: {key} is not finite at step {np.argwhere(~np.isfinite(array))[0][0]}")
        expected = self._features or features
        if set(expected) != set(features):
            raise InvalidEpisode(f"{where}: has {sorted(features)}, the set has {sorted(expected)}")
        for key, feature in features.items():
            for field in ("dtype", "shape"):
                if feature[field] != expected[key][field]:
                    raise InvalidEpisode(f"{where}: {key} has {field} {feature[field]}, the set {expected[key][field]}")

    def _open_files(self) -> None:
        self._data = _ParquetFiles(self._root, self._next_file, _data_schema(self._features))
        for key, feature in self._features.items():
            if feature["dtype"] == "video":
                self._videos[key] = _VideoFiles(self._root, self._next_file, key, self.fps, feature["shape"])

    def _write_episode(self, task: str, values: Mapping[str, np.ndarray]) -> None:
        assert self._data is not None
        length, first = len(values["action"]), self.num_frames
        task_index = self._tasks.setdefault(task, len(self._tasks))
        indices = {
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
        for key, array in columns.items():
            if not is_image(array):
                row |= {f"stats/{key}/{name}": value for name, value in summarize(array).items()}
        self._episode_rows.append(row)

    def finish(self) -> None:
        """Write the metadata and put the directory in its place."""
        if self._data is None:
            raise InvalidEpisode(f"{self.path}: no episode was added")
        with explain_write_errors(self.path):
            self._data.close()
            for videos in self._videos.values():
                videos.close()
            self._write_metadata()
        self._staging.commit()

    def discard(self) -> None:
        """Remove everything written so far; what was at the target stays."""
        for videos in self._videos.values():
            videos.abandon()
        self._staging.discard()

    def _write_metadata(self) -> None:
        file = dict(zip(("chunk_index", "file_index"), divmod(self._next_file, CHUNK_FILES), strict=True))
        rows = [row | {f"meta/episodes/{name}": index for name, index in file.items()} for row in self._episode_rows]
        _write_table(self._root / EPISODES_PATH.format(**file), pa.Table.from_pylist(rows))
        _write_table(self._root / "meta" / "tasks.parquet", _task_table(list(self._tasks)))
        index_features = {k: {"dtype": d, "shape": [1], "names": None} for k, d in _INDEX_DTYPES.items()}
        info = {
            "codebase_version": VERSION,
            "robot_type": self._robot_type,
            "total_episodes": self.num_episodes,
            "total_frames": self.num_frames,
            "total_tasks": len(self._tasks),
            "chunks_size": CHUNK_FILES,
            "data_files_size_in_mb": DATA_FILE_BYTES // 2**20,
            "video_files_size_in_mb": VIDEO_FILE_BYTES // 2**20,
            "fps": int(self.fps) if self.fps.is_integer() else self.fps,
            "splits": {"train": f"0:{self.num_episodes}"},
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH if self._videos else None,
            "features": self._features | index_features,
        }
        if self._provenance:
            (self._root / PROVENANCE_PATH).write_text(json.dumps(self._provenance, indent=4))
        (self._root / "meta" / "info.json").write_text(json.dumps(info, indent=4, ensure_ascii=False))
        (self._root / "meta" / "stats.json").write_text(json.dumps(_statistics(self._root), indent=4))

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


class _ParquetFiles:
    """The data files: rows are buffered into row groups, and a full file is followed by the next."""

    def __init__(self, root: Path, first_file: int, schema: pa.Schema) -> None:
        self._root, self._file, self._schema = root, first_file, schema
        self._buffer: list[pa.Table] = []
        self._sink: Any = None
        self._writer: Any = None

    def add(self, columns: Mapping[str, np.ndarray]) -> dict[str, int]:
        """Append an episode's rows; says in which file they are."""
        self._buffer.append(pa.table([_arrow_column(columns[f.name]) for f in self._schema], schema=self._schema))
        chunk, file = divmod(self._file, CHUNK_FILES)
        size = sum(table.nbytes for table in self._buffer)
        if size >= _GROUP_BYTES or sum(map(len, self._buffer)) >= _GROUP_ROWS:
            self._flush()
            if self._sink.tell() >= DATA_FILE_BYTES:
                self.close()
                self._file += 1
        return {"data/chunk_index": chunk, "data/file_index": file}

    def _flush(self) -> None:
        if not self._buffer:
            return
        if self._writer is None:
            chunk, file = divmod(self._file, CHUNK_FILES)
            path = self._root / DATA_PATH.format(chunk_index=chunk, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = path.open("wb")
            self._writer = pq.ParquetWriter(self._sink, self._schema)
        self._writer.write_table(pa.concat_tables(self._buffer))
        self._buffer = []

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
        self._writer = self._sink = None


class _VideoFiles:
    """One camera's mp4 files, each holding consecutive episodes."""

    def __init__(self, root: Path, first_file: int, key: str, fps: float, shape: list[int]) -> None:
        self._root, self._file, self._key, self._fps, self._shape = root, first_file, key, fps, shape
        self._encoder: VideoEncoder | None = None

    def add(self, frames: np.ndarray) -> dict[str, float]:
        """Encode an episode; says in which file and between which times it is."""
        chunk, file = divmod(self._file, CHUNK_FILES)
        if self._encoder is None:
            path = self._root / VIDEO_PATH.format(video_key=self._key, chunk_index=chunk, file_index=file)
            self._encoder = VideoEncoder(path, self._fps, *self._shape[:2])
        begin = self._encoder.seconds
        self._encoder.add(frames)
        place = {
            "chunk_index": chunk,
            "file_index": file,
            "from_timestamp": begin,
            "to_timestamp": self._encoder.seconds,
        }
        if self._encoder.bytes_written >= VIDEO_FILE_BYTES:
            self.close()
            self._file += 1
        return {f"videos/{self._key}/{name}": value for name, value in place.items()}

    def close(self) -> None:
        if self._encoder is not None:
            encoder, self._encoder = self._encoder, None
            encoder.close()

    def abandon(self) -> None:
        if self._encoder is not None:
            self._encoder.abandon()
            self._encoder = None


def _data_schema(features: Mapping[str, dict[str, Any]]) -> pa.Schema:
    fields = []
    for key, feature in features.items():
        if feature["dtype"] == "image":
            fields.append(pa.field(key, pa.struct([("bytes", pa.binary()), ("path", pa.string())])))
        elif feature["dtype"] != "video":
            fields.append(pa.field(key, _vector_type(tuple(feature["shape"]))))
    fields += [pa.field(key, pa.type_for_alias(dtype)) for key, dtype in _INDEX_DTYPES.items()]
    return pa.schema(fields)


def _vector_type(shape: tuple[int, ...]) -> pa.DataType:
    """Shape [1] is a scalar, a vector a fixed-size list, and more dimensions nested lists as `datasets` stores them."""
    if shape == (1,):
        return pa.float32()
    if len(shape) == 1:
        return pa.list_(pa.float32(), shape[0])
    return pa.list_(_vector_type(shape[1:]) if len(shape) > 2 else pa.list_(pa.float32()))


def _arrow_column(array: np.ndarray) -> pa.Array:
    if is_image(array):
        encoded = [{"bytes": _png(image), "path": None} for image in array]
        return pa.array(encoded, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    if array.ndim == 1 or array.shape[1:] == (1,):
        return pa.array(array.reshape(-1))
    if array.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])
    return pa.array(array.tolist(), _vector_type(array.shape[1:]))


def _png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    import_extra("PIL.Image", "formats").fromarray(image).save(buffer, "png", compress_level=3)
    return buffer.getvalue()


def _task_table(tasks: list[str]) -> pa.Table:
    """task_index as the column, the strings as the pandas index, which schema metadata declares."""
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), "task": tasks})
    columns = [
        {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"},
        {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object"},
    ]
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [{"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object"}],
        "columns": [column | {"metadata": None} for column in columns],
        "pandas_version": "2.0.0",
    }
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})


def _write_table(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _statistics(root: Path) -> dict[str, Any]:
    """`meta/stats.json`, recomputed from the frames on disk."""
    info = read_info(root)
    columns, observations = data_columns(root, info, read_episode_table(root)), read_lerobot(root).observations
    statistics = {}
    for key in info["features"]:
        if key in observations and is_image(observations[key]):
            statistics[key] = camera_statistics(observations[key])
        else:
            statistics[key] = vector_statistics(columns.blocks(key), columns.frames)
    return statistics


def read_provenance(root: Path) -> list[dict[str, Any]]:
    """How the episodes of a data set came about, where that was recorded."""
    file = root / PROVENANCE_PATH
    return json.loads(file.read_text()) if file.exists() else []


def copy_episode(writer: LeRobotWriter, episodes: Episodes, number: int) -> None:
    """Copy one episode of an open set into the writer."""
    frames = episodes.frames(number)
    observations = {key: values[frames] for key, values in episodes.observations.items()}
    writer.add_episode(episodes.task(number), episodes.actions[frames], observations)
