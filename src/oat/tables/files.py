"""Files of tables: JSON, from which they are read again, and beside it the formats that are pasted elsewhere."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from oat.errors import CorruptDataset
from oat.io.atomic import staged_file
from oat.tables.latex import to_latex
from oat.tables.markdown import to_markdown
from oat.tables.table import Table

FORMATS: dict[str, Callable[[Table], str]] = {".md": to_markdown, ".tex": to_latex}
"""Functions that write a table as text to paste elsewhere, by the suffix of the file."""


def save_tables(path: Path, tables: Sequence[Table]) -> None:
    """Write tables into a JSON file, whole or not at all."""
    with staged_file(path) as staging:
        staging.write_text(json.dumps([asdict(table) for table in tables], indent=1, ensure_ascii=False), "utf-8")


def write_tables(path: Path, tables: Sequence[Table]) -> None:
    """Write tables beside each other with this path's suffix replaced: as JSON, and in every format."""
    save_tables(path.with_suffix(".json"), tables)
    for suffix, write in FORMATS.items():
        with staged_file(path.with_suffix(suffix)) as staging:
            staging.write_text("\n".join(map(write, tables)), "utf-8")


def load_tables(path: Path) -> list[Table]:
    """Return the tables of a JSON file."""
    try:
        described = json.loads(path.read_text("utf-8"))
        return [
            Table(each["title"], tuple(each["columns"]), tuple(map(tuple, each["rows"])), tuple(each["notes"]))
            for each in described
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptDataset(f"{path}: not a file of tables ({error})") from error
