"""LeRobotDataset v3.0 directories, read with pyarrow and PyAV alone.

`meta/info.json` names the features; `meta/episodes/` locates every episode in the data and video files, each of which
holds many episodes; see https://huggingface.co/docs/lerobot/lerobot-dataset-v3.
"""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oat.data.columns import UINT8, LazyColumn, file_identity, load_column
from oat.data.episodes import Episodes, Frames
from oat.data.lerobot_splits import read_splits
from oat.data.video import open_video
from oat.errors import CorruptDataset, InvalidEpisode, MissingKey, OatError, UnsupportedVersion
from oat.io.extras import import_extra

VERSION = "v3.0"
INDEX_FEATURES = ("timestamp", "frame_index", "episode_index", "index", "task_index")


@dataclass(frozen=True)
class VideoFrames:
    """A camera stored as mp4 files that each hold many episodes."""

    files: tuple[Path, ...]  # one per episode
    from_times: np.ndarray  # the episode's first frame inside its file, in seconds
    starts: np.ndarray
    fps: float
    shape: tuple[int, ...]
    dtype: np.dtype[Any] = UINT8

    def __getitem__(self, frames: np.ndarray) -> np.ndarray:
        out = np.empty((len(frames), *self.shape[1:]), np.uint8)
        wanted, back = np.unique(frames, return_inverse=True)
        owners = np.searchsorted(self.starts, wanted, side="right") - 1
        decoded: list[np.ndarray] = []
        for owner in np.unique(owners):
            inside = wanted[owners == owner] - self.starts[owner]
            decoded.append(open_video(self.files[owner]).read(self.from_times[owner] + inside / self.fps, self.fps))
        images = np.concatenate(decoded) if decoded else out
        if images.shape[1:] != out.shape[1:]:
            raise CorruptDataset(f"{self.files[0]}: frames are {images.shape[1:]}, info.json says {self.shape[1:]}")
        return images[back]


@dataclass(frozen=True)
class ImageColumn:
    """A camera stored as encoded images in the data files' {bytes, path} column."""

    files: tuple[Path, ...]
    first_rows: np.ndarray  # the global index of each row group's first row
    groups: tuple[tuple[int, int], ...]  # (file, row group)
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] = UINT8

    def __getitem__(self, frames: np.ndarray) -> np.ndarray:
        out = np.empty((len(frames), *self.shape[1:]), np.uint8)
        owners = np.searchsorted(self.first_rows, frames, side="right") - 1
        for owner in np.unique(owners):
            file, group = self.groups[owner]
            column = _image_bytes(self.files[file], file_identity(self.files[file]), group, self.key)
            for position in np.flatnonzero(owners == owner):
                row = int(frames[position] - self.first_rows[owner])
                out[position] = self._decode(column[row].as_py(), self.files[file])
        return out

    def _decode(self, data: bytes | None, file: Path) -> np.ndarray:
        pil = import_extra("PIL.Image", "formats")
        try:
            image = np.asarray(pil.open(io.BytesIO(data or b"")).convert("RGB"))
        except OSError as error:
            raise CorruptDataset(f"{file}: {self.key} holds an unreadable image ({error})") from error
        if image.shape != self.shape[1:]:
            raise CorruptDataset(f"{file}: {self.key} is {image.shape}, info.json says {self.shape[1:]}")
        return image


def read_lerobot(root: Path) -> Episodes:
    """Read a LeRobotDataset v3.0 directory; only metadata and actions are read at once."""
    info = read_info(root)
    features = info["features"]
    if "action" not in features:
        raise MissingKey(f"{root}: no feature 'action'; it has {sorted(features)}")
    episodes = read_episode_table(root)
    starts, ends = episodes["dataset_from_index"].to_numpy(), episodes["dataset_to_index"].to_numpy()
    if len(starts) == 0:
        raise InvalidEpisode(f"{root}: no episodes")
    _check_bounds(root, info, starts, ends)
    with _explain_metadata(root):
        columns = data_columns(root, info, episodes)
        if len(columns.shape("action")) != 1:
            raise InvalidEpisode(f"{root}: actions must be (frames, dimensions), got shape {columns.shape('action')}")
        return Episodes(
            actions=columns.load("action"),
            starts=starts.astype(np.int64),
            ends=ends.astype(np.int64),
            **_tasks(root, episodes),
            observations=_observations(root, info, columns, episodes, starts),
            fps=float(info["fps"]),
            subsets=read_splits(info, len(starts)),
            action_names=_dimension_names(features["action"]),
            source=f"{root} (LeRobot {VERSION})",
            robot_type=info.get("robot_type"),
        )


@contextmanager
def _explain_metadata(root: Path) -> Iterator[None]:
    """Whatever it leaves out or calls otherwise: a feature without a shape, a table without a column."""
    try:
        yield
    except OatError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptDataset(
            f"{root}: its metadata is not that of LeRobot {VERSION} ({type(error).__name__}: {error})"
        ) from error


def read_info(root: Path) -> dict[str, Any]:
    """`meta/info.json`, refused with directions when it is of another version."""
    file = root / "meta" / "info.json"
    try:
        info = json.loads(file.read_text())
        version = str(info["codebase_version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptDataset(f"{file}: unreadable ({type(error).__name__}: {error})") from error
    if version != VERSION:
        older = version.lstrip("v") < VERSION.lstrip("v")
        remedy = (
            "convert it with LeRobot's own `python -m lerobot.datasets.v30.convert_dataset_v21_to_v30 --repo-id=NAME` "
            "(LeRobot 0.4; sets older than v2.1 first need LeRobot's converter to v2.1)"
            if older
            else "use a newer oat"
        )
        raise UnsupportedVersion(f"{root} is LeRobot {version}, but only {VERSION} is read; {remedy}")
    for key in ("features", "fps", "total_frames", "total_episodes", "data_path"):
        if key not in info:
            raise MissingKey(f"{file}: no {key!r}")
    if not isinstance(info["features"], dict):
        raise CorruptDataset(f"{file}: features must be a mapping, got {type(info['features']).__name__}")
    if not isinstance(info["fps"], int | float) or not 0 < info["fps"] < float("inf"):
        raise CorruptDataset(f"{file}: fps must be a positive number, got {info['fps']!r}")
    return info


def read_episode_table(root: Path) -> pa.Table:
    """All of `meta/episodes/`, in the order of episodes, without the statistics."""
    files = sorted((root / "meta" / "episodes").glob("*/*.parquet"))
    if not files:
        raise CorruptDataset(f"{root}: no parquet file below meta/episodes")
    tables = []
    for file in files:
        with explain_read_errors(file):
            names = [name for name in pq.read_schema(file).names if not name.startswith("stats/")]
            tables.append(pq.read_table(file, columns=names))
    with explain_read_errors(root / "meta" / "episodes"):
        table = pa.concat_tables(tables, promote_options="default").sort_by("episode_index")
    for name in ("length", "dataset_from_index", "dataset_to_index", "data/chunk_index", "data/file_index"):
        if name not in table.column_names:
            raise MissingKey(f"{root}: meta/episodes has no column {name!r}")
    return table


@contextmanager
def explain_read_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise CorruptDataset(f"{file}: named by the metadata, but not there") from error
    except (pa.ArrowException, OSError) as error:
        raise CorruptDataset(f"{file}: not a readable parquet file ({str(error).splitlines()[0]})") from error


def flat_values(array: pa.Array, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of a column of scalars, lists or nested lists as (rows, *shape)."""
    rows = len(array)
    while pa.types.is_nested(array.type):
        array = array.flatten()
    if array.null_count or len(array) != rows * int(np.prod(shape)):
        raise pa.ArrowInvalid(f"{len(array) - array.null_count} numbers in {rows} rows of shape {shape}")
    return array.to_numpy(zero_copy_only=False).reshape(rows, *shape)


@dataclass(frozen=True)
class DataColumns:
    """The numeric columns of the data files."""

    files: tuple[Path, ...]
    frames: int
    features: dict[str, Any]

    def shape(self, key: str) -> tuple[int, ...]:
        return tuple(self.features[key]["shape"]) or (1,)

    def load(self, key: str) -> np.ndarray:
        return load_column(key, (self.frames, *self.shape(key)), lambda: self.blocks(key), self.files)

    def blocks(self, key: str) -> Iterator[np.ndarray]:
        for file in self.files:
            with explain_read_errors(file), pq.ParquetFile(file) as parquet:
                if key not in parquet.schema_arrow.names:
                    raise MissingKey(f"{file}: no column {key!r}; it has {parquet.schema_arrow.names}")
                for batch in parquet.iter_batches(65536, columns=[key]):
                    yield flat_values(batch.column(0), self.shape(key))


def data_columns(root: Path, info: dict[str, Any], episodes: pa.Table) -> DataColumns:
    files = _episode_files(root, info["data_path"], episodes, "data")
    return DataColumns(tuple(dict.fromkeys(files)), int(info["total_frames"]), info["features"])


def _check_bounds(root: Path, info: dict[str, Any], starts: np.ndarray, ends: np.ndarray) -> None:
    contiguous = starts[0] == 0 and (starts[1:] == ends[:-1]).all()
    if not contiguous or len(starts) != info["total_episodes"] or ends[-1] != info["total_frames"]:
        raise CorruptDataset(
            f"{root}: info.json counts {info['total_episodes']} episodes and {info['total_frames']} frames, "
            f"meta/episodes {len(starts)} and {ends[-1]}{'' if contiguous else ', with gaps'}"
        )


def _episode_files(root: Path, template: str, episodes: pa.Table, prefix: str, **names: str) -> list[Path]:
    """For each episode the file that holds its rows (`data`) or its frames (`videos/<key>`)."""
    chunks, files = episodes[f"{prefix}/chunk_index"].to_pylist(), episodes[f"{prefix}/file_index"].to_pylist()
    paths = {
        pair: root / template.format(chunk_index=pair[0], file_index=pair[1], **names) for pair in zip(chunks, files)
    }
    return [paths[pair] for pair in zip(chunks, files)]


def read_tasks(root: Path) -> list[str]:
    """`meta/tasks.parquet`, whose task strings are the pandas index."""
    file = root / "meta" / "tasks.parquet"
    with explain_read_errors(file):
        table = pq.read_table(file)
    strings = [f.name for f in table.schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    if not strings or "task_index" not in table.column_names:
        raise MissingKey(f"{file}: needs a task_index and the task strings, got columns {table.column_names}")
    return [str(task) for task in table.sort_by("task_index")[strings[0]].to_pylist()]


def _tasks(root: Path, episodes: pa.Table) -> dict[str, Any]:
    """An episode's task is the first one listed for it."""
    tasks = read_tasks(root)
    number = {task: index for index, task in enumerate(tasks)}
    listed = episodes["tasks"].to_pylist() if "tasks" in episodes.column_names else [[tasks[0]]] * len(episodes)
    try:
        ids = [number[names[0]] for names in listed]
    except (KeyError, IndexError, TypeError) as error:
        raise CorruptDataset(f"{root}: an episode's task is not in meta/tasks.parquet ({error})") from error
    return {"tasks": tuple(tasks), "task_ids": np.array(ids, np.int64)}


def _observations(
    root: Path, info: dict[str, Any], columns: DataColumns, episodes: pa.Table, starts: np.ndarray
) -> dict[str, Frames]:
    observations: dict[str, Frames] = {}
    for key, feature in info["features"].items():
        if not key.startswith("observation"):
            continue
        if feature["dtype"] == "video":
            files = _episode_files(root, info["video_path"], episodes, f"videos/{key}", video_key=key)
            from_times = episodes[f"videos/{key}/from_timestamp"].to_numpy()
            shape = (columns.frames, *_height_width(feature), 3)
            observations[key] = VideoFrames(tuple(files), from_times, starts, float(info["fps"]), shape)
        elif feature["dtype"] == "image":
            observations[key] = _image_column(columns, key, feature)
        elif feature["dtype"] != "string":
            observations[key] = LazyColumn((columns.frames, *columns.shape(key)), partial(columns.load, key))
    return observations


def _image_column(columns: DataColumns, key: str, feature: dict[str, Any]) -> ImageColumn:
    first_rows, groups = [0], []
    for number, file in enumerate(columns.files):
        with explain_read_errors(file):
            metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            groups.append((number, group))
            first_rows.append(first_rows[-1] + metadata.row_group(group).num_rows)
    shape = (columns.frames, *_height_width(feature), 3)
    return ImageColumn(columns.files, np.array(first_rows[:-1]), tuple(groups), key, shape)


@lru_cache(maxsize=8)
def _image_bytes(file: Path, identity: tuple[int, int, int], group: int, key: str) -> pa.Array:
    with explain_read_errors(file), pq.ParquetFile(file) as parquet:
        return parquet.read_row_group(group, columns=[key])[key].combine_chunks().field("bytes")


def _height_width(feature: dict[str, Any]) -> tuple[int, int]:
    """Published sets list images as (height, width, channel) or (channel, height, width)."""
    shape = list(feature["shape"])
    names = feature.get("names")
    if isinstance(names, list) and names:
        channel_first = str(names[0]).startswith("channel")
    else:
        channel_first = shape[0] == 3 != shape[-1]
    height, width = shape[1:] if channel_first else shape[:2]
    return int(height), int(width)


def _dimension_names(feature: dict[str, Any]) -> tuple[str, ...]:
    """Dimension names are a list or, in some published sets, a mapping of groups to lists."""
    names = feature.get("names")
    if isinstance(names, dict):
        names = [name for group in names.values() for name in (group if isinstance(group, list) else [group])]
    names = [str(name) for name in names or []]
    return tuple(names) if len(names) == feature["shape"][0] else ()
