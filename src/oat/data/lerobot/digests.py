"""The digests of a data set's files, which our writer adds to LeRobot's layout: a changed file is noticed."""

import hashlib
import json
from pathlib import Path
from typing import Any

from oat.data.verified import remember_verified, was_verified
from oat.errors import CorruptDataset

DIGESTS_PATH = "meta/digests.json"


def write_digests(root: Path, continued: Path | None) -> None:
    """Write the size and SHA-256 of every file; those shared with the set that is continued keep theirs."""
    known = {} if continued is None else _read(continued)
    digests = {}
    for file in sorted(root.rglob("*")):
        name = file.relative_to(root).as_posix()
        if not file.is_file() or name == DIGESTS_PATH:
            continue
        shared = continued is not None and name in known and (continued / name).samefile(file)
        digests[name] = known[name] if shared else {"bytes": file.stat().st_size, "sha256": _digest(file)}
    (root / DIGESTS_PATH).write_text(json.dumps(digests, indent=4), "utf-8")


def check_digests(root: Path, again: bool = False) -> None:
    """Raise `CorruptDataset` for a file that is not as it was written; sets without digests have nothing to check.

    Sizes are compared whenever a set is opened, contents once, and `again` on request.
    """
    known = _read(root)
    files = [root / name for name in known]
    for file, digest in zip(files, known.values(), strict=True):
        if not file.is_file():
            raise CorruptDataset(f"{file}: named by {DIGESTS_PATH}, but not there")
        if file.stat().st_size != digest["bytes"]:
            raise _changed(root, file)
    if not known or (not again and was_verified([root / DIGESTS_PATH, *files])):
        return
    for file, digest in zip(files, known.values(), strict=True):
        if _digest(file) != digest["sha256"]:
            raise _changed(root, file)
    remember_verified([root / DIGESTS_PATH, *files])


def _read(root: Path) -> dict[str, Any]:
    """Return what is known of each file, by its path in the set."""
    file = root / DIGESTS_PATH
    if not file.exists():
        return {}
    try:
        digests = json.loads(file.read_text("utf-8"))
        for name, digest in digests.items():
            if ".." in Path(name).parts or Path(name).is_absolute() or set(digest) != {"bytes", "sha256"}:
                raise ValueError(f"it describes {name!r:.60}")
        return digests
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise CorruptDataset(f"{file}: unreadable ({type(error).__name__}: {error})") from error


def _changed(root: Path, file: Path) -> CorruptDataset:
    return CorruptDataset(
        f"{file} was changed after the set was written; if that was meant, delete {root / DIGESTS_PATH}"
    )


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
