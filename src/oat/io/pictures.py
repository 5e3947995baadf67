"""Make matplotlib figures that need no display, and write them to files."""

from pathlib import Path
from typing import Any

from oat.io.atomic import staged_file
from oat.io.extras import import_extra


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of this size in inches."""
    # Without a backend of its own, matplotlib would look for a display.
    import_extra("matplotlib", "report").use("Agg")
    return import_extra("matplotlib.figure", "report").Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path, dpi: int) -> None:
    """Write a figure to a file in the format of its suffix; the file appears when it is complete."""
    with staged_file(path) as staging:
        figure.savefig(staging, dpi=dpi)
