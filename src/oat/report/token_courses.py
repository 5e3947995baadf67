"""Choose policies that decided how many tokens a chunk needs, and episodes of theirs, with frames of their films."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from oat.data.video import open_video
from oat.evaluation.evaluate import VIDEOS_FOLDER
from oat.evaluation.records import EpisodeRecord
from oat.evaluation.summaries import by_policy
from oat.evaluation.token_courses import chose_depth, chunk_starts, mean_course
from oat.io.extras import import_extra
from oat.report.results_folder import ResultsFolder
from oat.report.rollouts import RolloutGroup

PARTS = 20
"""Parts of an episode at which mean numbers of tokens are given."""
_MOST_POLICIES = 4
_MOST_EPISODES = 4  # of each policy, of different tasks where there are several
_FRAMES = 6  # of an episode; more would be too small to see anything on
_FRAME_SIZE = 176


@dataclass(frozen=True)
class EpisodeCourse:
    """Hold the tokens of one episode's chunks, and what the episode looked like meanwhile."""

    task: str
    outcome: str
    steps: int
    starts: Sequence[int]
    """The step from which each chunk was executed."""
    tokens: Sequence[int]
    frames: Sequence[str]
    """Pictures from the middles of equal parts of the episode, as data: addresses; none where it was not filmed."""


@dataclass(frozen=True)
class TokenCourses:
    """Hold where along its episodes a policy used how many tokens."""

    policy: str
    method: str
    protocol: str
    episodes: int
    means: Mapping[str, Sequence[float]]
    """The mean number of tokens at equal parts of the episodes, by task."""
    examples: Sequence[EpisodeCourse]


def read_token_courses(folder: ResultsFolder, rollouts: Sequence[RolloutGroup]) -> tuple[list[TokenCourses], int]:
    """Return a few policies that decided how deep to go, those with films first, and how many were left out."""
    films = {file.stem: file for path in folder.records for file in sorted((path.parent / VIDEOS_FOLDER).glob("*.mp4"))}
    found: list[tuple[RolloutGroup, str, list[EpisodeRecord], dict[EpisodeRecord, Path]]] = []
    for group in rollouts:
        filmed = {record: films[name] for name, record in group.records_by_file_name.items() if name in films}
        deciding = by_policy(record for record in group.records if chose_depth(record))
        found += [(group, policy, records, filmed) for policy, records in deciding.items()]
    found.sort(key=lambda each: not any(record in each[3] for record in each[2]))
    courses = []
    for group, policy, records, filmed in found[:_MOST_POLICIES]:
        tasks = dict.fromkeys(record.key.task for record in records)
        tokens = {task: [each.chunk_tokens for each in records if each.key.task == task] for task in tasks}
        courses.append(
            TokenCourses(
                policy,
                records[0].key.method,
                f"{group.protocol}, {group.split} conditions",
                len(records),
                {task: mean_course(each, PARTS) for task, each in tokens.items()},
                [_read_episode(folder, record, filmed.get(record)) for record in _choose_episodes(records, filmed)],
            )
        )
    return courses, max(0, len(found) - _MOST_POLICIES)


def _choose_episodes(records: Sequence[EpisodeRecord], filmed: Mapping[EpisodeRecord, Path]) -> list[EpisodeRecord]:
    """Return one episode of each task: a filmed one where there is one, else rather one that was solved."""
    best: dict[str, EpisodeRecord] = {}
    for record in sorted(records, key=lambda each: (each not in filmed, not each.success)):
        best.setdefault(record.key.task, record)
    return list(best.values())[:_MOST_EPISODES]


def _read_episode(folder: ResultsFolder, record: EpisodeRecord, film: Path | None) -> EpisodeCourse:
    frames: list[str] = []
    if film is not None:
        with folder.noting_problems():
            frames = [_encode_frame(frame) for frame in open_video(film).spread(_FRAMES)]
    solved = "solved" if record.success else "not solved"
    return EpisodeCourse(record.key.task, solved, record.steps, chunk_starts(record), record.chunk_tokens, frames)


def _encode_frame(frame: UInt8[np.ndarray, "height width 3"]) -> str:
    image = import_extra("PIL.Image", "formats").fromarray(frame)
    image.thumbnail((_FRAME_SIZE, _FRAME_SIZE))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
