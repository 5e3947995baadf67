"""The look of all our tables in the terminal."""

from rich import box
from rich.table import Table


def make_table(title: str, *columns: str) -> Table:
    """Words of a heading that hyphens join may stand below each other, as those between spaces do."""
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    table.title_justify = table.caption_justify = "left"
    for number, column in enumerate(columns):
        heading = column.replace("-", "-\n")
        table.add_column(heading, justify="left" if number == 0 else "right", overflow="fold")
    return table
