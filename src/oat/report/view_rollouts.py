"""Log rollouts for Rerun's viewer: the videos of an evaluation, into which predicted paths are drawn, and outcomes."""

import re
from pathlib import Path
from typing import Any

from oat.errors import InvalidOption
from oat.evaluation.records import RECORDS_FILE, EpisodeRecord, read_records
from oat.io.extras import import_extra
from oat.io.progress import progress_bar

VIDEO_TIME = "video_time"
"""The viewer's timeline of videos."""


def log_rollouts(stream: Any, folder: Path) -> None:
    """Log every filmed episode of an evaluation."""
    filmed = {file.stem: file for file in sorted((folder / "videos").glob("*.mp4"))}
    records = [record for record in read_records(folder / RECORDS_FILE) if record.key.file_name in filmed]
    if not records:
        raise InvalidOption(f"{folder} has no videos: oat eval --videos 1 films an episode of every task")
    with progress_bar("logging rollouts", len(records)) as bar:
        for record in records:
            _log_rollout(stream, record, filmed[record.key.file_name])
            bar.advance()


def _log_rollout(stream: Any, record: EpisodeRecord, film: Path) -> None:
    rerun = import_extra("rerun", "rerun")
    key = record.key
    place = f"{key.task}/{key.method}_{key.decoding}_{key.condition}"
    place = re.sub(r"[^\w/.-]+", "_", place)  # Rerun would escape anything else in names
    outcome = "success" if record.success else "failure"
    told = f"{outcome} after {record.steps} steps, {record.chunks} chunks, {record.tokens} tokens"
    stream.log(f"{place}/outcome", rerun.TextDocument(told), static=True)
    video = rerun.AssetVideo(path=film)
    stream.log(f"{place}/video", video, static=True)
    times = video.read_frame_timestamps_nanos()
    stream.send_columns(
        f"{place}/video",
        indexes=[rerun.TimeColumn(VIDEO_TIME, duration=1e-9 * times)],
        columns=rerun.VideoFrameReference.columns_nanos(times),
    )
