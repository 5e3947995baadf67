"""Choose a few videos of episodes, small enough to be part of the page."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from oat.evaluation.evaluate import VIDEOS_FOLDER
from oat.evaluation.records import EpisodeRecord
from oat.report.results_folder import ResultsFolder
from oat.report.rollouts import RolloutGroup

_MOST_VIDEOS = 8
_MOST_BYTES = 5_000_000  # together: they are a part of the page, which should be small enough to send


@dataclass(frozen=True)
class Video:
    """Hold a filmed episode as the page plays it."""

    caption: str
    outcome: str
    source: str
    """The video as a data: address."""


def choose_videos(folder: ResultsFolder, rollouts: Sequence[RolloutGroup]) -> tuple[list[Video], int]:
    """Return a few megabytes of videos, one policy after the other, and the number of those left out."""
    directories = dict.fromkeys(path.parent / VIDEOS_FOLDER for path in folder.records)
    files = [file for directory in directories for file in sorted(directory.glob("*.mp4"))]
    records = {name: record for group in rollouts for name, record in group.records_by_file_name.items()}
    chosen: list[Path] = []
    for file in _alternate_policies(files, records):
        size = sum(each.stat().st_size for each in (*chosen, file))
        if len(chosen) < _MOST_VIDEOS and size <= _MOST_BYTES:
            chosen.append(file)
    return [_load_video(file, records.get(file.stem)) for file in chosen], len(files) - len(chosen)


def _alternate_policies(files: Iterable[Path], records: Mapping[str, EpisodeRecord]) -> list[Path]:
    """Order files so that each policy's first comes before any policy's second, and so on."""
    queues: dict[str, list[Path]] = {}
    for file in files:
        record = records.get(file.stem)
        policy = "" if record is None else f"{record.key.method} {record.key.decoding} {record.key.checkpoint}"
        queues.setdefault(policy, []).append(file)
    return [file for file in chain.from_iterable(zip_longest(*queues.values())) if file is not None]


def _load_video(file: Path, record: EpisodeRecord | None) -> Video:
    # Written into the page itself, which must open from disk without any file beside it.
    encoded = base64.b64encode(file.read_bytes()).decode()
    source = f"data:video/mp4;base64,{encoded}"
    if record is None:
        return Video(file.stem, "not among the records", source)
    outcome = f"solved in {record.steps} steps" if record.success else f"not solved in {record.steps} steps"
    return Video(f"{record.key.method} {record.key.decoding}: {record.key.task}", outcome, source)
