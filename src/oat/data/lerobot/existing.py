"""What a LeRobotDataset at the writer's target already holds, which a writer that appends continues."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oat.data.lerobot.features import Features
from oat.data.lerobot.files import CHUNK_FILES, DATA_PATH, VIDEO_PATH
from oat.data.lerobot.metadata import INDEX_FEATURES, read_episode_table, read_info, read_tasks
from oat.data.lerobot.reader import read_lerobot
from oat.data.provenance import read_provenance
from oat.errors import InvalidOption


@dataclass(frozen=True)
class ExistingSet:
    """Describe the data set that is appended to; the defaults describe a new one."""

    info: dict[str, Any] = field(default_factory=dict)
    features: Features = field(default_factory=dict)
    episode_schema: pa.Schema | None = None
    tasks: tuple[str, ...] = ()
    episodes: int = 0
    frames: int = 0
    provenance: tuple[dict[str, Any], ...] = ()
    next_file: int = 0
    """The number of the first file, of any kind, that is not there yet."""

    @classmethod
    def read(cls, path: Path, fps: float) -> "ExistingSet":
        """Read a data set's metadata; raise `InvalidOption` unless episodes at this frequency can be appended."""
        read_lerobot(path)  # only a sound set is continued
        info = read_info(path)
        if float(info["fps"]) != fps:
            raise InvalidOption(f"{path} has {info['fps']} frames per second, cannot append at {fps:g}")
        if info["data_path"] != DATA_PATH or (info.get("video_path") or VIDEO_PATH) != VIDEO_PATH:
            raise InvalidOption(f"{path} keeps its files elsewhere than {DATA_PATH}, cannot append")
        return cls(
            info=info,
            features={key: feature for key, feature in info["features"].items() if key not in INDEX_FEATURES},
            episode_schema=pq.read_schema(min((path / "meta" / "episodes").glob("*/*.parquet"))),
            tasks=tuple(read_tasks(path)),
            episodes=int(info["total_episodes"]),
            frames=int(info["total_frames"]),
            provenance=tuple(read_provenance(path)),
            next_file=1 + max(_last_file(read_episode_table(path)), _last_on_disk(path)),
        )


def _last_file(episodes: pa.Table) -> int:
    """Return the largest number of any data, video or metadata file that the table of episodes names."""
    columns = [name.removesuffix("/file_index") for name in episodes.column_names if name.endswith("/file_index")]
    return max(
        chunk * CHUNK_FILES + file
        for column in columns
        for chunk, file in zip(
            episodes[f"{column}/chunk_index"].to_pylist(), episodes[f"{column}/file_index"].to_pylist(), strict=True
        )
    )


def _last_on_disk(path: Path) -> int:
    """Return the largest number of any file that is there, whether an episode names it or not."""
    found = (re.fullmatch(r"chunk-(\d+)/file-(\d+)\..*", f"{f.parent.name}/{f.name}") for f in path.rglob("file-*"))
    return max((int(match[1]) * CHUNK_FILES + int(match[2]) for match in found if match), default=-1)
