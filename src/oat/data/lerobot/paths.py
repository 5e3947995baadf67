"""The paths of a LeRobotDataset's files: templates of its metadata, which are parsed rather than trusted."""

import re
from pathlib import Path, PurePosixPath, PureWindowsPath
from string import Formatter

from oat.errors import CorruptDataset

_NUMBER = re.compile(r"(0?[1-9]?d?)?")  # such as 03d; a width of two digits would be a name of many megabytes
_FIELDS = {"chunk_index": _NUMBER, "file_index": _NUMBER, "video_key": re.compile("")}


def check_template(root: Path, template: str) -> None:
    """Raise `CorruptDataset` for a template that holds other fields than LeRobot's, or formats them otherwise."""
    try:
        parts = list(Formatter().parse(template))
    except (ValueError, TypeError) as error:
        raise _refused(root, template, str(error)) from error
    for _, field, specification, conversion in parts:
        if field is None:
            continue
        allowed = _FIELDS.get(field)
        if allowed is None or conversion or not allowed.fullmatch(specification or ""):
            raise _refused(root, template, f"its fields may be {', '.join(_FIELDS)}, numbers with a width up to 9")


def fill_template(root: Path, template: str, chunk: int, file: int, video_key: str = "") -> Path:
    """Return the path that a checked template gives; raise `CorruptDataset` for one that leaves the data set."""
    filled = template.format(chunk_index=int(chunk), file_index=int(file), video_key=video_key)
    windows = PureWindowsPath(filled)
    # Judged by the name alone: the files of a downloaded set are links to somewhere else.
    if not filled or PurePosixPath(filled).is_absolute() or windows.anchor or ".." in windows.parts or "\0" in filled:
        raise _refused(root, filled, "it leaves the data set")
    return root / filled


def _refused(root: Path, template: object, reason: str) -> CorruptDataset:
    return CorruptDataset(f"{root}: a path of its metadata is {template!r:.100}, which is not allowed: {reason}")
