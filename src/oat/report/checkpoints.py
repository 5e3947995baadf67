"""Read from checkpoints how they were made."""

import json
from dataclasses import dataclass
from pathlib import Path

from oat.io.checkpoints import CONFIG_FILE, find_checkpoint
from oat.io.training_record import stored_record
from oat.report.results_folder import ResultsFolder
from oat.tables.interval import NOT_AVAILABLE


@dataclass(frozen=True)
class Checkpoint:
    """Describe how a tokenizer or a policy was made, in words for a table."""

    name: str
    kind: str
    seed: str
    steps: str
    command: str


def read_checkpoints(folder: ResultsFolder) -> list[Checkpoint]:
    """Describe every tokenizer and policy of a folder from its configuration, without loading weights."""
    names = folder.short_names([*folder.tokenizers, *folder.policies])
    return [_read_checkpoint(path, name) for path, name in names.items()]


def _read_checkpoint(path: Path, name: str) -> Checkpoint:
    config = json.loads((find_checkpoint(path) / CONFIG_FILE).read_text("utf-8"))
    record = stored_record(config)
    return Checkpoint(
        name=name,
        kind=str(config["kind"]),
        seed=_text(record.seed),
        steps=_text(record.step),
        command=_text(record.command),
    )


def _text(value: int | str | None) -> str:
    """Return a value of the record as a cell of the table, with a dash where nobody noted it."""
    return NOT_AVAILABLE if value is None else str(value)
