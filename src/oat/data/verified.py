"""What was found sound is not checked again until a file changes: a memory beside the cache of columns."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oat.data.columns import cache_directory, file_identity


def was_verified(files: Sequence[Path]) -> bool:
    """Return whether these files, as they are now, were found sound before."""
    return _marker(files).exists()


def remember_verified(files: Sequence[Path]) -> None:
    """Note that these files, as they are now, are sound; where nothing can be noted, they are checked again."""
    marker = _marker(files)
    with suppress(OSError):
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def _marker(files: Sequence[Path]) -> Path:
    identities = [(str(file.resolve()), *file_identity(file)) for file in files]
    name = hashlib.sha256(json.dumps(identities).encode()).hexdigest()[:32]
    return cache_directory().parent / "verified" / name
