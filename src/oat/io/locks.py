"""Locks between processes: a file that one of them holds, for as long as it lives and no longer."""

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oat.errors import DatasetExists
from oat.io.write_errors import explain_write_errors


class Lock:
    """Hold a file against other processes and other locks of this one, until `release` or the process's end.

    The file is removed on release. One that a killed process left behind is free, and is taken over.
    """

    def __init__(self, file: Path, purpose: str) -> None:
        with explain_write_errors(file):
            handle = _acquire(file)
        if handle is None:
            raise DatasetExists(f"another process is {purpose}; wait for it, or choose another path")
        self.release = weakref.finalize(self, _release, handle, file)


@contextmanager
def exclusive(folder: Path, purpose: str) -> Iterator[None]:
    """Lock a folder against other processes; the lock ends with this process, however it ends."""
    lock = Lock(folder / "lock", purpose)
    try:
        yield
    finally:
        lock.release()


def _acquire(file: Path) -> int | None:
    """Return a handle that holds the lock, or None if somebody else does."""
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        if not _lock(handle):
            os.close(handle)
            return None
        if _is_at(handle, file):
            return handle
        os.close(handle)  # the last holder removed this file before we had it: whoever comes next makes another


def _lock(handle: int) -> bool:
    """Take the lock of an open file if it is free; where the system has no such locks, nobody is refused."""
    if os.name != "posix":
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _is_at(handle: int, file: Path) -> bool:
    """Return whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


def _release(handle: int, file: Path) -> None:
    with suppress(OSError):
        file.unlink()  # before it is closed: nobody else can have taken it yet
    os.close(handle)
