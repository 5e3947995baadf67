"""Reading a LeRobotDataset v3.0 directory as `Episodes`."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from oat.data.columns import LazyColumn
from oat.data.episodes import Episodes, Frames
from oat.data.lerobot.cameras import ImageColumn, VideoFrames
from oat.data.lerobot.columns import DataColumns, data_columns
from oat.data.lerobot.digests import check_digests
from oat.data.lerobot.metadata import (
    VERSION,
    check_bounds,
    dimension_names,
    episode_files,
    explain_metadata_errors,
    image_size,
    read_episode_table,
    read_info,
    read_tasks,
)
from oat.data.lerobot.splits import read_splits
from oat.errors import CorruptDataset, InvalidEpisode, MissingKey


def is_lerobot(path: Path) -> bool:
    """Return whether a path is a LeRobotDataset directory, whatever its version."""
    return (path / "meta" / "info.json").exists()


def read_lerobot(root: Path) -> Episodes:
    """Read a LeRobotDataset v3.0 directory; only metadata and actions are read at once."""
    check_digests(root)
    info = read_info(root)
    features = info["features"]
    if "action" not in features:
        raise MissingKey(f"{root}: no feature 'action'; it has {sorted(features)}")
    episodes = read_episode_table(root)
    starts = episodes["dataset_from_index"].to_numpy()
    ends = episodes["dataset_to_index"].to_numpy()
    if len(starts) == 0:
        raise InvalidEpisode(f"{root}: no episodes")
    check_bounds(root, info, starts, ends)
    with explain_metadata_errors(root):
        columns = data_columns(root, info, episodes)
        if len(columns.shape("action")) != 1:
            raise InvalidEpisode(f"{root}: actions must be (frames, dimensions), got shape {columns.shape('action')}")
        tasks = read_tasks(root)
        return Episodes(
            actions=columns.load("action"),
            starts=starts.astype(np.int64),
            ends=ends.astype(np.int64),
            tasks=tuple(tasks),
            task_ids=_task_ids(root, episodes, tasks),
            observations=_observations(root, info, columns, episodes, starts),
            fps=float(info["fps"]),
            subsets=read_splits(info, len(starts)),
            action_names=dimension_names(features["action"]),
            source=f"{root} (LeRobot {VERSION})",
            robot_type=info.get("robot_type"),
        )


def _task_ids(root: Path, episodes: pa.Table, tasks: list[str]) -> np.ndarray:
    """Return each episode's index into `tasks`; an episode's task is the first one listed for it."""
    number = {task: index for index, task in enumerate(tasks)}
    listed = episodes["tasks"].to_pylist() if "tasks" in episodes.column_names else [[tasks[0]]] * len(episodes)
    try:
        return np.array([number[names[0]] for names in listed], np.int64)
    except (KeyError, IndexError, TypeError) as error:
        raise CorruptDataset(f"{root}: an episode's task is not in meta/tasks.parquet ({error})") from error


def _observations(
    root: Path, info: dict[str, Any], columns: DataColumns, episodes: pa.Table, starts: np.ndarray
) -> dict[str, Frames]:
    observations: dict[str, Frames] = {}
    for key, feature in info["features"].items():
        if not key.startswith("observation"):
            continue
        if feature["dtype"] == "video":
            files = episode_files(root, info["video_path"], episodes, f"videos/{key}", video_key=key)
            from_times = episodes[f"videos/{key}/from_timestamp"].to_numpy()
            shape = (columns.frames, *image_size(feature), 3)
            observations[key] = VideoFrames(tuple(files), from_times, starts, float(info["fps"]), shape)
        elif feature["dtype"] == "image":
            shape = (columns.frames, *image_size(feature), 3)
            observations[key] = ImageColumn.locate(columns.files, key, shape)
        elif feature["dtype"] != "string":  # text cannot be given to a model
            observations[key] = LazyColumn((columns.frames, *columns.shape(key)), partial(columns.load, key))
    return observations
