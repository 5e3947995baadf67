"""Files of JSON lines that survive a kill: what was appended counts, a last line that was cut short does not."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from oat.errors import CorruptDataset
from oat.io.write_errors import explain_write_errors

Parsed = TypeVar("Parsed")


def read_json_lines(path: Path, parse: Callable[[Any], Parsed], kind: str) -> tuple[list[Parsed], int]:
    """Return what the lines hold and the bytes that they take; anything after those is a line that a kill cut short.

    A file whose name ends in .gz is compressed. Every line must parse as `kind`, such as "a record of an episode":
    damage is not passed over.
    """
    parsed: list[Parsed] = []
    size = 0
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):  # only the last line can lack its end
                break
            try:
                parsed.append(parse(json.loads(line)))
            except (ValueError, TypeError, KeyError) as error:
                raise CorruptDataset(f"{path}, line {number}: not {kind} ({error})") from error
            size += len(line)
    return parsed, size


class JsonLinesWriter:
    """Append lines to a file after its first `size` bytes; what follows them is cut off."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        with explain_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")
            self._file.truncate(size)  # a line that was cut short would join with the next one

    def append(self, value: Any) -> None:
        """Write a line, and return when it is on the disk."""
        with explain_write_errors(self.path):
            self._file.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, of which every line is on the disk already."""
        with explain_write_errors(self.path):
            self._file.close()
