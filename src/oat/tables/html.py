"""Tables in HTML, for the page, whose style sheet gives their classes a look."""

import re
from collections.abc import Sequence
from html import escape

from oat.tables.table import Table

# Also intervals, counts such as "3 : 5" and the dash of a missing value.
_NUMBERS = re.compile(r"[\d\s.,…±%+−–—:eE()\[\]-]*")
_LONG = 60  # characters from which a cell is text to be wrapped


def to_html(table: Table) -> str:
    """Return the table as a figure with its notes as the caption; everything in it is escaped."""
    numeric = _numeric_columns(table)
    title = escape(table.title)
    lines = (
        '<figure class="table-figure">',
        f"<h4>{title}</h4>",
        # Wide tables scroll; with a tab index a keyboard can do so, too.
        f'<div class="table" role="region" tabindex="0" aria-label="{title}">',
        "<table>",
        f"<thead>{_head(table.columns, numeric)}</thead>",
        "<tbody>",
        *(_row(cells, numeric) for cells in table.rows),
        "</tbody>",
        "</table>",
        "</div>",
        *_caption(table.notes),
        "</figure>",
    )
    return "\n".join(lines)


def _numeric_columns(table: Table) -> list[bool]:
    """Return which columns hold numbers only, and are aligned to the right."""
    return [all(_NUMBERS.fullmatch(row[place]) for row in table.rows) for place in range(len(table.columns))]


def _head(columns: Sequence[str], numeric: Sequence[bool]) -> str:
    cells = (
        f'<th scope="col" class="number">{escape(column)}</th>' if number else f'<th scope="col">{escape(column)}</th>'
        for column, number in zip(columns, numeric, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _row(cells: Sequence[str], numeric: Sequence[bool]) -> str:
    first, *others = cells
    written = "".join(_cell(cell, number) for cell, number in zip(others, numeric[1:], strict=True))
    return f'<tr><th scope="row">{escape(first)}</th>{written}</tr>'


def _cell(text: str, number: bool) -> str:
    if number:
        return f'<td class="number">{escape(text)}</td>'
    return f'<td class="long">{escape(text)}</td>' if len(text) > _LONG else f"<td>{escape(text)}</td>"


def _caption(notes: Sequence[str]) -> list[str]:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return [f"<figcaption><ul>{items}</ul></figcaption>"] if notes else []
