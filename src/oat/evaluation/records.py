"""Records of episodes, one JSON line each, appended as the episodes end."""

import gzip
import hashlib
import json
import re
import zlib
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

from oat.errors import CorruptDataset, InvalidOption
from oat.interfaces import Split
from oat.io.json_lines import JsonLinesWriter, read_json_lines

RECORDS_FILE = "records.jsonl"
COMPRESSED_RECORDS_FILE = f"{RECORDS_FILE}.gz"

_NAMES_ON_DISK = {"demonstrator": "data_source"}  # published records keep the key that they were written with


@dataclass(frozen=True)
class EpisodeKey:
    """Identify an episode: two records with equal keys are of the same one."""

    protocol: str
    method: str
    """The policy and its tokenizer, such as oat or dp, with what tells it from the usual one, such as oat-flow."""
    training_seed: int
    checkpoint: str
    """The fingerprint of the policy's checkpoint."""
    decoding: str
    task: str
    split: Split
    condition: int
    repeat: int
    """Several episodes from one condition differ by the policy's sampling."""

    @property
    def file_name(self) -> str:
        """Return a name for files that belong to the episode: readable, and unique by its hash."""
        shown = f"{self.task}-{self.method}-{self.decoding}-{self.condition}-{self.repeat}"
        digest = hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()[:12]
        # Task names may hold what file systems do not allow, and some allow no more than 255 bytes.
        return re.sub(r"[^\w=.-]+", "_", shown, flags=re.ASCII)[:120] + "-" + digest


@dataclass(frozen=True)
class EpisodeRecord:
    """Hold how one episode went, and how long the policy took in it."""

    key: EpisodeKey
    success: bool
    score: float
    """The simulator's score at the end of the episode."""
    best_score: float
    steps: int
    chunks: int
    tokens: int
    """Tokens generated, or denoising steps taken, in the whole episode."""
    failed_decodes: int
    jerk: float | None
    """Mean square of the executed actions' third differences: small for smooth motion; None below four actions."""
    inference_ms_p50: float | None
    inference_ms_p95: float | None
    """Milliseconds of the batches that its chunks were computed in, as quantiles; None without a chunk."""
    demonstrator: str
    """Who gave the demonstrations that the policy was trained on: human or scripted; on disk "data_source"."""
    versions: str
    evaluation_seed: int = 0
    """The group of episodes that it belongs to."""
    crashed: bool = False
    """Whether the simulator died twice in this episode."""
    error: str = ""
    """The traceback or the exit code that the simulator died with, if it did."""
    samples: int = 1
    """Chunks that were drawn for each one that was executed."""
    chunk_tokens: tuple[int, ...] = ()
    """Tokens of each chunk in turn; empty in records of before."""
    jump: float | None = None
    """Mean distance from the last action of one chunk to the first that is executed of the next, in action units."""
    start: str = ""
    """The fingerprint of a stored start; empty where the condition determines it, and in records of before."""


class RecordLog:
    """Append records to a file; what was written before counts, a line that a kill cut short does not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records, size = _scan(path) if path.exists() else ([], 0)
        self.finished = {record.key for record in self.records}
        self._lines = JsonLinesWriter(path, size)

    def append(self, record: EpisodeRecord) -> None:
        """Write a record at once; a second one of the same episode is a defect."""
        assert record.key not in self.finished, record.key  # counted twice, it would narrow the intervals
        self._lines.append({_NAMES_ON_DISK.get(name, name): value for name, value in asdict(record).items()})
        self.records.append(record)
        self.finished.add(record.key)

    def close(self) -> None:
        """Close the file; every record was written when it was appended."""
        self._lines.close()


def find_records(path: Path) -> Path:
    """Return the file of records in a folder, which is compressed where a study was published; a file is itself."""
    if not path.is_dir():
        return path
    compressed = path / COMPRESSED_RECORDS_FILE
    plain = path / RECORDS_FILE
    return compressed if compressed.exists() and not plain.exists() else plain


def read_records(path: Path) -> list[EpisodeRecord]:
    """Return the records of a file, gzipped if its name says so; only its last line may be unfinished."""
    if not path.exists():
        raise InvalidOption(f"{path} does not exist; `oat eval` writes records")
    try:
        return _scan(path)[0]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorruptDataset(f"{path} is damaged: {error}") from error


def _scan(path: Path) -> tuple[list[EpisodeRecord], int]:
    """Return the records, and the bytes that they take; no episode may be there twice."""
    records, size = read_json_lines(path, _from_json, "a record of an episode")
    lines: dict[EpisodeKey, int] = {}
    for number, record in enumerate(records, start=1):
        if record.key in lines:
            raise CorruptDataset(f"{path}, line {number}: the same episode as line {lines[record.key]}")
        lines[record.key] = number
    return records, size


def _from_json(values: dict[str, Any]) -> EpisodeRecord:
    """Return the record of a line; what later versions may have added is left out."""
    stored = {field.name: _NAMES_ON_DISK.get(field.name, field.name) for field in fields(EpisodeRecord)}
    given = {name: values[key] for name, key in stored.items() if key in values}
    given["chunk_tokens"] = tuple(given.get("chunk_tokens", ()))
    return EpisodeRecord(**{**given, "key": EpisodeKey(**values["key"])})
