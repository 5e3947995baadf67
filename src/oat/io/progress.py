"""The progress bar that every command shows while a person waits."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


@dataclass(frozen=True)
class Progress:
    """Advance a bar that is being shown."""

    _bar: RichProgress
    _task: int

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Move the bar on, and show a short remark such as a rate."""
        self._bar.update(self._task, advance=steps, note=note)  # type: ignore[arg-type]


@contextmanager
def progress_bar(description: str, total: int | None, completed: int = 0, quiet: bool = False) -> Iterator[Progress]:
    """Show a bar on standard error with the time left; in a log file only its last state appears."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    # Standard output is for results, which may be piped into a program.
    with RichProgress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        yield Progress(bar, bar.add_task(description, total=total, completed=completed, note=""))
