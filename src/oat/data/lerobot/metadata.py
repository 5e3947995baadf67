"""The metadata of a LeRobotDataset v3.0: features, the table of episodes and the task strings."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oat.data.episodes import LARGEST_IMAGE
from oat.data.lerobot.paths import check_template, fill_template
from oat.errors import CorruptDataset, MissingKey, OatError, UnsupportedVersion

VERSION = "v3.0"
INDEX_FEATURES = ("timestamp", "frame_index", "episode_index", "index", "task_index")


@contextmanager
def explain_metadata_errors(root: Path) -> Iterator[None]:
    """Raise `CorruptDataset` for metadata of another layout: a feature without a shape, a table without a column."""
    try:
        yield
    except OatError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptDataset(
            f"{root}: its metadata is not that of LeRobot {VERSION} ({type(error).__name__}: {error})"
        ) from error


@contextmanager
def explain_read_errors(file: Path) -> Iterator[None]:
    """Raise `CorruptDataset` for a parquet file that is missing or unreadable."""
    try:
        yield
    except FileNotFoundError as error:
        raise CorruptDataset(f"{file}: named by the metadata, but not there") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CorruptDataset(f"{file}: not a readable parquet file ({reason})") from error


def read_info(root: Path) -> dict[str, Any]:
    """Return `meta/info.json`; raise `UnsupportedVersion`, saying what to do, if it is of another version."""
    file = root / "meta" / "info.json"
    try:
        info = json.loads(file.read_text("utf-8"))
        version = str(info["codebase_version"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
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
    """Return all of `meta/episodes/` in the order of episodes, without the statistics."""
    files = sorted((root / "meta" / "episodes").glob("*/*.parquet"))
    if not files:
        raise CorruptDataset(f"{root}: no parquet file below meta/episodes")
    tables = []
    for file in files:
        with explain_read_errors(file):
            # Every feature has ten columns of statistics, which reading never needs.
            names = [name for name in pq.read_schema(file).names if not name.startswith("stats/")]
            tables.append(pq.read_table(file, columns=names, page_checksum_verification=True))
    with explain_read_errors(root / "meta" / "episodes"):
        table = pa.concat_tables(tables, promote_options="default").sort_by("episode_index")
    for name in ("length", "dataset_from_index", "dataset_to_index", "data/chunk_index", "data/file_index"):
        if name not in table.column_names:
            raise MissingKey(f"{root}: meta/episodes has no column {name!r}")
    return table


def read_tasks(root: Path) -> list[str]:
    """Return the task strings of `meta/tasks.parquet`, in which they are the pandas index."""
    file = root / "meta" / "tasks.parquet"
    with explain_read_errors(file):
        table = pq.read_table(file, page_checksum_verification=True)
    # Some sets name the index `task` and others leave it to pandas, so take the column that holds text.
    strings = [f.name for f in table.schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    if not strings or "task_index" not in table.column_names:
        raise MissingKey(f"{file}: needs a task_index and the task strings, got columns {table.column_names}")
    return [str(task) for task in table.sort_by("task_index")[strings[0]].to_pylist()]


def check_bounds(root: Path, info: dict[str, Any], starts: np.ndarray, ends: np.ndarray) -> None:
    """Raise `CorruptDataset` unless the episodes follow each other and are as many as info.json counts."""
    contiguous = starts[0] == 0 and (starts[1:] == ends[:-1]).all()
    if not contiguous or len(starts) != info["total_episodes"] or ends[-1] != info["total_frames"]:
        raise CorruptDataset(
            f"{root}: info.json counts {info['total_episodes']} episodes and {info['total_frames']} frames, "
            f"meta/episodes {len(starts)} and {ends[-1]}{'' if contiguous else ', with gaps'}"
        )


def episode_files(root: Path, template: str, episodes: pa.Table, prefix: str, video_key: str = "") -> list[Path]:
    """Return for each episode the file that holds its rows (`data`) or its frames (`videos/<key>`)."""
    check_template(root, template)
    chunks = episodes[f"{prefix}/chunk_index"].to_pylist()
    files = episodes[f"{prefix}/file_index"].to_pylist()
    pairs = list(zip(chunks, files, strict=True))
    # Many episodes share a file: build each path once.
    paths = {pair: fill_template(root, template, *pair, video_key) for pair in dict.fromkeys(pairs)}
    return [paths[pair] for pair in pairs]


def image_size(feature: dict[str, Any]) -> tuple[int, int]:
    """Return (height, width); published sets list images as (height, width, channel) or (channel, height, width)."""
    shape = list(feature["shape"])
    names = feature.get("names")
    if isinstance(names, list) and names:
        channel_first = str(names[0]).startswith("channel")
    else:
        channel_first = shape[0] == 3 != shape[-1]
    height, width = shape[1:] if channel_first else shape[:2]
    if not all(type(side) is int and 1 <= side <= LARGEST_IMAGE for side in (height, width)):
        raise ValueError(f"images must have sides of 1…{LARGEST_IMAGE} pixels, got {shape}")
    return height, width


def dimension_names(feature: dict[str, Any]) -> tuple[str, ...]:
    """Return the dimensions' names, which are a list or, in some published sets, a mapping of groups to lists."""
    names = feature.get("names")
    if isinstance(names, dict):
        names = [name for group in names.values() for name in (group if isinstance(group, list) else [group])]
    names = [str(name) for name in names or []]
    return tuple(names) if len(names) == feature["shape"][0] else ()
