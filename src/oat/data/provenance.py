"""A record of how the episodes of a LeRobot directory came about, kept beside LeRobot's own files.

`meta/provenance.json` is a list with one entry per collection or conversion that added episodes.
"""

import json
from pathlib import Path
from typing import Any

from oat.errors import CorruptDataset
from oat.interfaces import UNKNOWN_DEMONSTRATOR

PROVENANCE_PATH = "meta/provenance.json"


def read_provenance(root: Path) -> list[dict[str, Any]]:
    """Return how the episodes of a data set came about; an empty list where that was not recorded."""
    file = root / PROVENANCE_PATH
    try:
        entries = json.loads(file.read_text()) if file.exists() else []
    except (OSError, ValueError) as error:
        raise CorruptDataset(f"{file}: unreadable ({type(error).__name__}: {error})") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CorruptDataset(f"{file}: must hold a list of entries")
    return entries


def read_demonstrator(root: Path) -> str:
    """Return who demonstrated, such as "scripted", or "unknown" where that was not recorded."""
    # A set may have been added to by several demonstrators; on disk, each entry's key is "expert".
    kinds = {str(entry.get("expert", UNKNOWN_DEMONSTRATOR)) for entry in read_provenance(root.expanduser())}
    return " and ".join(sorted(kinds)) or UNKNOWN_DEMONSTRATOR
