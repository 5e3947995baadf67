"""Closed loop: episodes that were run alike, and videos of a few of them."""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from oat.evaluation.evaluate import VIDEOS_FOLDER
from oat.evaluation.protocol import protocol_name
from oat.evaluation.records import EpisodeKey, EpisodeRecord, read_records
from oat.evaluation.summaries import Summary, by_policy, summarize
from oat.report.loaded import Findings, method_of
from oat.tables.success import POOLED

_VIDEOS = 8
_VIDEO_BYTES = 5_000_000


@dataclass(frozen=True)
class ClosedLoop:
    """Records of one protocol and split: the only ones that may be put side by side."""

    protocol: str
    """As a person calls it, if it is known: records keep its hash."""
    split: str
    records: tuple[EpisodeRecord, ...]
    summaries: tuple[Summary, ...]
    files: Mapping[str, EpisodeRecord]
    """Records by the name of the files that belong to them."""

    @cached_property
    def overall(self) -> list[Summary]:
        """Every policy on all the tasks that it met."""
        last = {summary.policy: summary for summary in self.summaries}  # the pooled one comes after the tasks
        return list(last.values())

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(row.task for row in self.summaries if row.task != POOLED))

    @cached_property
    def methods(self) -> dict[str, str]:
        """The method of every policy."""
        return {policy: records[0].key.method for policy, records in by_policy(self.records).items()}

    def remarks(self) -> list[str]:
        """Where policies met different tasks, so that their overall rates mean different things."""
        met = {
            row.policy: [task.task for task in self.summaries if task.policy == row.policy and task.task != POOLED]
            for row in self.overall
        }
        return [
            f"{policy} has no episodes of {', '.join(task for task in self.tasks if task not in tasks)}: "
            "its rate is over fewer tasks than the others'."
            for policy, tasks in met.items()
            if len(tasks) < len(self.tasks)
        ]


@dataclass(frozen=True)
class Video:
    """A filmed episode, ready for the page."""

    caption: str
    outcome: str
    source: str
    """A data: address."""


def closed_loops(found: Findings) -> list[ClosedLoop]:
    """All records, by how they were made; an episode that lies in two files counts once."""
    first: dict[EpisodeKey, Path] = {}
    groups: dict[tuple[str, str], list[_Found]] = {}
    for path in found.records:
        with found.noting_problems():
            records = read_records(path)
            again = [record for record in records if record.key in first]
            if again:
                here, there = (file.relative_to(found.root) for file in (path, first[again[0].key]))
                found.problems.append(f"{len(again)} episodes of {here} are also in {there}; they count once")
            for record in records:
                if first.setdefault(record.key, path) == path:
                    groups.setdefault((record.key.protocol, record.key.split), []).append(_Found(path, record))
    loops = []
    for (protocol, split), group in groups.items():
        records = _tell_apart(group)
        files = {each.record.key.file_name: record for each, record in zip(group, records, strict=True)}
        loops.append(ClosedLoop(protocol_name(protocol), split, tuple(records), tuple(summarize(records)), files))
    return loops


class _Found(NamedTuple):
    """A record and the file that it was in."""

    path: Path
    record: EpisodeRecord

    @property
    def policy(self) -> "_Policy":
        return _Policy(self.record.key.method, self.record.key.training_seed, self.record.key.checkpoint)


class _Policy(NamedTuple):
    """What records know of a policy."""

    method: str
    training_seed: int
    checkpoint: str


def _tell_apart(group: Sequence[_Found]) -> list[EpisodeRecord]:
    """The records, policies of one method differing by nothing but the training seed."""
    names = _name_methods({each.policy: each.path.parent.name for each in reversed(group)})
    return [replace(each.record, key=replace(each.record.key, method=names[each.policy])) for each in group]


def _name_methods(folders: Mapping[_Policy, str]) -> dict[_Policy, str]:
    """What to call each policy's method, from the name of the directory that its records are in.

    Older records call every variant of a tokenizer by its kind: then directories called NAME-seedN tell them apart,
    else the checkpoints' fingerprints do.
    """
    written = {each: each.method if method_of(name) == name else method_of(name) for each, name in folders.items()}
    pairs = {(each.method, name) for each, name in written.items()}
    several = {method for method, count in Counter(method for method, _ in pairs).items() if count > 1}
    names = {each: name if each.method in several else each.method for each, name in written.items()}
    taken = Counter((name, each.training_seed) for each, name in names.items())
    ambiguous = {name for (name, _), count in taken.items() if count > 1}
    return {each: f"{name} {each.checkpoint}" if name in ambiguous else name for each, name in names.items()}


def choose_videos(found: Findings, loops: Sequence[ClosedLoop]) -> tuple[list[Video], int]:
    """A few megabytes of videos, one policy after the other, and the number of those left out."""
    folders = dict.fromkeys(path.parent / VIDEOS_FOLDER for path in found.records)
    files = [file for folder in folders for file in sorted(folder.glob("*.mp4"))]
    filmed = {name: record for loop in loops for name, record in loop.files.items()}
    chosen: list[Path] = []
    for file in _take_turns(files, filmed):
        size = sum(each.stat().st_size for each in (*chosen, file))
        if len(chosen) < _VIDEOS and size <= _VIDEO_BYTES:
            chosen.append(file)
    return [_video(file, filmed.get(file.stem)) for file in chosen], len(files) - len(chosen)


def _take_turns(files: Iterable[Path], filmed: Mapping[str, EpisodeRecord]) -> list[Path]:
    """Each policy's first, then each one's second, and so on."""
    queues: dict[str, list[Path]] = {}
    for file in files:
        record = filmed.get(file.stem)
        policy = "" if record is None else f"{record.key.method} {record.key.decoding} {record.key.checkpoint}"
        queues.setdefault(policy, []).append(file)
    return [file for file in chain.from_iterable(zip_longest(*queues.values())) if file is not None]


def _video(file: Path, record: EpisodeRecord | None) -> Video:
    encoded = base64.b64encode(file.read_bytes()).decode()
    source = f"data:video/mp4;base64,{encoded}"
    if record is None:
        return Video(file.stem, "not among the records", source)
    outcome = f"solved in {record.steps} steps" if record.success else f"not solved in {record.steps} steps"
    return Video(f"{record.key.method} {record.key.decoding}: {record.key.task}", outcome, source)
