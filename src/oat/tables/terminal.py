"""Tables in the terminal, drawn by rich; all of them look alike."""

from rich import box
from rich.markup import escape
from rich.table import Table as RichTable

from oat.tables.table import Table

_WORD = 16  # characters of a word in a row's name that are kept together


def make_rich_table(title: str, *columns: str) -> RichTable:
    """Return an empty table of our look, for cells that are more than text."""
    drawn = RichTable(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    drawn.title_justify = "left"
    drawn.caption_justify = "left"
    for number, column in enumerate(columns):
        # Words that hyphens join may stand below each other, as those between spaces do: narrow columns leave room.
        heading = column.replace("-", "-\n")
        drawn.add_column(heading, justify="left" if number == 0 else "right", overflow="fold")
    return drawn


def to_terminal(table: Table) -> RichTable:
    """Return what rich prints: the table, and its notes below it."""
    # Square brackets in names and notes are not markup.
    drawn = make_rich_table(escape(table.title), *map(escape, table.columns))
    for row in table.rows:
        drawn.add_row(*map(escape, row))
    for column, cells in zip(drawn.columns, zip(table.columns, *table.rows, strict=True), strict=True):
        column.no_wrap = not any(" " in cell for cell in cells)  # where it is narrow, wrap what has words first
    named = [word for row in table.rows for word in row[0].split()]
    # Names stay whole where other columns can give way.
    drawn.columns[0].min_width = min(_WORD, max(map(len, named), default=0))
    drawn.caption = escape("\n".join(f"· {note}" for note in table.notes))
    return drawn
