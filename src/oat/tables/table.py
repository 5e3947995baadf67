"""A table as a value: cells that are already text, which `files` keeps and the other modules here write out."""

from dataclasses import dataclass

from oat.errors import InvalidOption

PICTURE = "picture: "
"""Beginning of a note that names a picture, which is in figures/ beside the table's folder."""


@dataclass(frozen=True)
class Table:
    """Hold cells as they are to be read, with what must be known to read them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InvalidOption(f"{self.title}: {len(self.columns)} columns need as many cells, got {row}")
