"""Tables in Markdown, as GitHub shows them."""

from collections.abc import Sequence

from oat.tables.table import Table


def to_markdown(table: Table) -> str:
    """Return the table under its title, the first column to the left and all others to the right, then its notes."""
    alignment = ("---", *("---:" for _ in table.columns[1:]))
    lines = [f"### {table.title}", "", _line(table.columns), _line(alignment), *map(_line, table.rows)]
    if table.notes:
        lines += ["", *(f"- {note}" for note in table.notes)]
    return "\n".join((*lines, ""))


def _line(cells: Sequence[str]) -> str:
    # A bar inside a cell would begin another one.
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
