"""Read what a benchmark's folder of models and textures says about itself, and name the file that it lacks.

A set in which some files stand for others has to say so: in a file PROVENANCE.json, or under a heading of a README.md
about stand-ins, in the folder or beside it. What a benchmark's authors publish has neither. The version of a simulator
then ends in what it has instead, such as "stand-in kitchen"; so records know it, and from them tables.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oat.errors import SimulatorError

STAND_IN = "stand-in"
_PROVENANCE = "PROVENANCE.json"
_README = "README.md"
_HEADING = re.compile(rf"^#.*\b{STAND_IN}", re.IGNORECASE | re.MULTILINE)
_UNOPENED = re.compile(r"Error opening file '(?P<file>[^']+)'")  # MuJoCo's words


def has_stand_ins(folder: Path) -> bool:
    """Return whether a folder of assets says that some of its files stand for others."""
    provenance = folder / _PROVENANCE
    if provenance.is_file() and STAND_IN in provenance.read_text("utf-8", errors="replace"):
        return True
    readmes = (place / _README for place in (folder, folder.resolve().parent))
    return any(_HEADING.search(file.read_text("utf-8", errors="replace")) for file in readmes if file.is_file())


def stand_ins(versions: str) -> list[str]:
    """Return what stood for a benchmark's own assets, by the versions in a record; nothing in records of before."""
    return [part for part in versions.split(", ") if part.startswith(f"{STAND_IN} ")]


@contextmanager
def explain_missing_files(benchmark: str, command: str, shown: Callable[[str], str] = str) -> Iterator[None]:
    """Name a file that a benchmark or MuJoCo does not find, in the form to be shown, and the command that gets it."""
    try:
        yield
    except (OSError, ValueError) as error:
        file = _missing_file(error)
        if file is None:
            raise
        raise SimulatorError(f"{benchmark}'s assets lack {shown(file)}: fetch them with `{command}`") from error


def _missing_file(error: OSError | ValueError) -> str | None:
    """Return the file that an error is about, if it is that this file is not there."""
    if isinstance(error, FileNotFoundError):
        return str(error.filename)
    found = _UNOPENED.search(str(error))
    return found["file"] if found else None
