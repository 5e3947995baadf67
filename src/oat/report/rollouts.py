"""Read episode records, and group those that were run alike."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from oat.evaluation.protocol import protocol_name
from oat.evaluation.records import EpisodeKey, EpisodeRecord, read_records
from oat.evaluation.summaries import Summary, by_policy, summarize
from oat.report.results_folder import ResultsFolder, method_of
from oat.tables.success import POOLED


@dataclass(frozen=True)
class RolloutGroup:
    """Hold the episodes of one protocol and split: only those may be put side by side."""

    protocol: str
    """Name of the protocol, or its hash, which records hold, where no known benchmark has it."""
    split: str
    records: tuple[EpisodeRecord, ...]
    summaries: tuple[Summary, ...]
    records_by_file_name: Mapping[str, EpisodeRecord]
    """Records by the name of the files that belong to them, such as videos."""

    @cached_property
    def overall(self) -> list[Summary]:
        """Return each policy's summary of all the tasks that it met."""
        # Of one policy's summaries the pooled one comes last, so that it is the one that stays.
        last = {summary.policy: summary for summary in self.summaries}
        return list(last.values())

    @property
    def tasks(self) -> list[str]:
        """Return the tasks that any policy met, in the order of the summaries."""
        return list(dict.fromkeys(row.task for row in self.summaries if row.task != POOLED))

    @cached_property
    def methods(self) -> dict[str, str]:
        """Return the method of every policy, by the policy's name."""
        return {policy: records[0].key.method for policy, records in by_policy(self.records).items()}

    def remarks(self) -> list[str]:
        """Say which policies met fewer tasks than others, so that their overall rates mean something else."""
        tasks_met = {
            row.policy: [task.task for task in self.summaries if task.policy == row.policy and task.task != POOLED]
            for row in self.overall
        }
        return [
            f"{policy} has no episodes of {', '.join(task for task in self.tasks if task not in tasks)}: "
            "its rate is over fewer tasks than the others'."
            for policy, tasks in tasks_met.items()
            if len(tasks) < len(self.tasks)
        ]


def read_rollouts(folder: ResultsFolder) -> list[RolloutGroup]:
    """Read all records, grouped by how they were made; an episode that is in two files counts once."""
    first_file: dict[EpisodeKey, Path] = {}
    groups: dict[tuple[str, str], list[_StoredRecord]] = {}
    for path in folder.records:
        with folder.noting_problems():
            records = read_records(path)
            repeated = [record for record in records if record.key in first_file]
            if repeated:
                here = path.relative_to(folder.root)
                there = first_file[repeated[0].key].relative_to(folder.root)
                folder.problems.append(f"{len(repeated)} episodes of {here} are also in {there}; they count once")
            for record in records:
                if first_file.setdefault(record.key, path) == path:
                    how = (record.key.protocol, record.key.split)
                    groups.setdefault(how, []).append(_StoredRecord(path, record))
    return [_make_group(protocol, split, stored) for (protocol, split), stored in groups.items()]


class _StoredRecord(NamedTuple):
    """Hold a record with the file that it was in."""

    path: Path
    record: EpisodeRecord

    @property
    def policy(self) -> "_PolicyIdentity":
        return _PolicyIdentity(self.record.key.method, self.record.key.training_seed, self.record.key.checkpoint)


class _PolicyIdentity(NamedTuple):
    """Identify the policy that acted, as far as records know it."""

    method: str
    training_seed: int
    checkpoint: str


def _make_group(protocol: str, split: str, stored: Sequence[_StoredRecord]) -> RolloutGroup:
    records = _rename_methods(stored)
    # Files were named after the method as it was recorded, before it was renamed here.
    by_file_name = {each.record.key.file_name: record for each, record in zip(stored, records, strict=True)}
    return RolloutGroup(protocol_name(protocol), split, tuple(records), tuple(summarize(records)), by_file_name)


def _rename_methods(stored: Sequence[_StoredRecord]) -> list[EpisodeRecord]:
    """Return the records so that policies with one method's name differ by nothing but the training seed."""
    names = _name_methods({each.policy: each.path.parent.name for each in reversed(stored)})
    return [replace(each.record, key=replace(each.record.key, method=names[each.policy])) for each in stored]


def _name_methods(directories: Mapping[_PolicyIdentity, str]) -> dict[_PolicyIdentity, str]:
    """Choose what to call each policy's method, from the name of the directory that its records are in.

    Older records call every variant of a tokenizer by its kind: then directories called NAME-seedN tell them apart,
    else the checkpoints' fingerprints do.
    """
    candidates = {
        policy: policy.method if method_of(directory) == directory else method_of(directory)
        for policy, directory in directories.items()
    }
    pairs = {(policy.method, name) for policy, name in candidates.items()}
    with_variants = {method for method, count in Counter(method for method, _ in pairs).items() if count > 1}
    names = {policy: name if policy.method in with_variants else policy.method for policy, name in candidates.items()}
    uses = Counter((name, policy.training_seed) for policy, name in names.items())
    ambiguous = {name for (name, _), count in uses.items() if count > 1}
    return {policy: f"{name} {policy.checkpoint}" if name in ambiguous else name for policy, name in names.items()}
