"""What happened in every episode, one JSON line each, appended as it happens."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from oat.atomic import explain_write_errors
from oat.errors import CorruptDataset, InvalidOption


@dataclass(frozen=True)
class EpisodeKey:
    """What makes an episode the one it is: two records with equal keys are the same episode."""

    protocol: str
    method: str
    """The policy and its tokenizer, such as oat or diffusion."""
    training_seed: int
    checkpoint: str
    """The hash of the policy's weights."""
    decoding: str
    task: str
    condition: int
    repeat: int
    """Several episodes from one condition differ by the policy's sampling."""

    @property
    def policy(self) -> str:
        """As tables name it."""
        return f"{self.method} {self.decoding}"


@dataclass(frozen=True)
class EpisodeRecord:
    """One episode."""

    key: EpisodeKey
    success: bool
    score: float
    """At the end."""
    best_score: float
    steps: int
    chunks: int
    tokens: int
    """Generated, or denoising steps taken, in the whole episode."""
    failed_decodes: int
    jerk: float
    """Mean square of the executed actions' third differences: small for smooth motion."""
    inference_ms_p50: float
    inference_ms_p95: float
    data_source: str
    """Who demonstrated: human or scripted."""
    versions: str
    evaluation_seed: int = 0
    """The group of episodes that it belongs to."""
    crashed: bool = False
    """The simulator died twice in this episode."""


class RecordLog:
    """A file of records; what was written before counts, a line that a kill cut short does not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = list(read_records(path)) if path.exists() else []
        self.finished = {record.key for record in self.records}
        with explain_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = "".join(_to_line(record) for record in self.records)
            if path.exists() and path.read_text() != whole:  # cut off what a kill left unfinished
                path.write_text(whole)
            self._file = path.open("a")

    def append(self, record: EpisodeRecord) -> None:
        """Write a record at once; a second one of the same episode is a defect."""
        assert record.key not in self.finished, record.key
        with explain_write_errors(self.path):
            self._file.write(_to_line(record))
            self._file.flush()
            os.fsync(self._file.fileno())
        self.records.append(record)
        self.finished.add(record.key)

    def close(self) -> None:
        self._file.close()


def read_records(path: Path) -> Iterator[EpisodeRecord]:
    """The records of a file; only its last line may be unfinished."""
    if not path.exists():
        raise InvalidOption(f"{path} does not exist; `oat eval` writes records")
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            yield _from_json(json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            if number < len(lines):
                raise CorruptDataset(f"{path}, line {number}: not a record of an episode ({error})") from error


def _to_line(record: EpisodeRecord) -> str:
    return json.dumps(asdict(record), ensure_ascii=False) + "\n"


def _from_json(values: dict[str, Any]) -> EpisodeRecord:
    known = {field.name for field in fields(EpisodeRecord)}
    return EpisodeRecord(
        key=EpisodeKey(**values["key"]), **{name: values[name] for name in values if name in known - {"key"}}
    )
