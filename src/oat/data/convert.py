"""Converting a data set in any readable format to LeRobotDataset v3.0."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from oat.data.episodes import CameraStorage, Episodes, WhenExists, open_dataset
from oat.data.lerobot import LeRobotWriter, copy_episode
from oat.data.provenance import read_demonstrator
from oat.errors import InvalidOption
from oat.interfaces import UNKNOWN_DEMONSTRATOR
from oat.io.notes import note
from oat.io.progress import progress_bar

ASSUMED_FPS = 10.0
"""The control frequency, in Hz, that is assumed for formats that do not record it."""


def convert_dataset(
    source: Path,
    out: Path,
    *,
    subset: str | None = None,
    ranges: str | None = None,
    cameras: CameraStorage = "image",
    fps: float | None = None,
    exists: WhenExists = "refuse",
    reobserve: Callable[[Episodes], Episodes] | None = None,
) -> None:
    """Write the episodes of `source`, in whatever format it is, to `out`, with other observations if so asked."""
    if source.expanduser().resolve() == out.expanduser().resolve():
        raise InvalidOption(f"{out}: source and output are the same directory")
    episodes = open_dataset(source, subset, ranges)
    if reobserve is not None:
        episodes = reobserve(episodes)
    if fps is None:
        fps = episodes.fps or _assume_fps(episodes)
    writer = LeRobotWriter(
        out,
        fps,
        cameras=cameras,
        exists=exists,
        robot_type=episodes.robot_type,
        action_names=episodes.action_names,
    )
    if episodes.subsets and (lost := writer.record_subsets(episodes.subsets)):
        note(
            f"{', '.join(lost)} of {episodes.source}: no range of episodes, which is all that a LeRobot split can be, "
            "so left out; convert each with --subset to keep them apart"
        )
    entry: dict[str, Any] = {"converted_from": episodes.source, "episodes": len(episodes)}
    if (demonstrator := read_demonstrator(source)) != UNKNOWN_DEMONSTRATOR:
        entry["expert"] = demonstrator
    writer.record_provenance(entry)
    with writer, progress_bar("converting", len(episodes)) as progress:
        for number in range(len(episodes)):
            copy_episode(writer, episodes, number)
            progress.advance()
    result = f"wrote {len(episodes)} episodes, {episodes.num_frames} frames to {out}"
    Console(soft_wrap=True).print(result, highlight=False, markup=False)


def _assume_fps(episodes: Episodes) -> float:
    """Return the frequency that is assumed, and say so."""
    note(f"{episodes.source} does not record its control frequency; assuming {ASSUMED_FPS:g} (--fps to change)")
    return ASSUMED_FPS
