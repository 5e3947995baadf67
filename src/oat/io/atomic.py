"""Files and directories that are either complete or absent: written beside their place, then renamed into it."""

import ctypes
import errno
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oat.errors import DatasetExists, WriteFailed

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


@contextmanager
def explain_write_errors(target: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if "No space left" in str(error) or error.errno in _FULL:  # Arrow keeps the number only in its text
            reason = "the disk is full"
            remedy = "free some space and run again"
        elif error.errno in _FORBIDDEN:
            reason = os.strerror(error.errno)
            remedy = "check the owner and mode of its directory"
        else:
            reason = error.strerror or str(error)
            remedy = "choose another place"
        raise WriteFailed(
            f"cannot write {target}: {reason}. Nothing that existed before was changed; {remedy}."
        ) from error


@contextmanager
def staged_file(target: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `target` that replaces it when the block succeeds and vanishes when it fails.

    A durable file survives a power failure, too, at the price of waiting for the disk.
    """
    target = target.resolve()
    with explain_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = _beside(target)
        try:
            yield staging
            if durable:
                _sync(staging)
            staging.replace(target)
        finally:
            staging.unlink(missing_ok=True)


def identity(path: Path) -> int | None:
    """Return a number by which to tell whether a path still names the same directory; None when there is nothing."""
    # The inode: a directory that is renamed into the same place has another one.
    try:
        return path.stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None


class StagedDirectory:
    """Build a directory beside `target`; `commit` puts it in target's place at once, `discard` removes it.

    `replaces` is the identity of what may be replaced (see `identity`): if another process changes the target in the
    meantime, `commit` refuses, and what the other wrote stays.
    """

    def __init__(self, target: Path, replaces: int | None) -> None:
        self.target = target.resolve()
        self.replaces = replaces
        with explain_write_errors(self.target):
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self.path = _beside(self.target)
            self.path.mkdir()

    def commit(self) -> None:
        """Make the directory appear at `target`; raise `DatasetExists` if another process changed it meanwhile."""
        with explain_write_errors(self.target):
            # Contents first: after a power failure, a renamed directory must not hold empty files.
            for file in self.path.rglob("*"):
                if file.is_file():
                    _sync(file)
            if self.replaces is None:
                self._move()
            else:
                self._swap()
            _sync(self.target.parent)  # the renaming itself is an entry of the parent directory

    def _move(self) -> None:
        try:
            self.path.rename(self.target)  # fails if there is a directory with something in it
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise self._changed() from error
            raise

    def _swap(self) -> None:
        if identity(self.target) is None:
            raise self._changed()
        _exchange(self.path, self.target)
        if identity(self.path) != self.replaces:  # not the one we read: put it back
            _exchange(self.path, self.target)
            raise self._changed()
        shutil.rmtree(self.path, ignore_errors=True)

    def _changed(self) -> DatasetExists:
        return DatasetExists(f"{self.target} was changed by another process in the meantime; it was left as it is")

    def discard(self) -> None:
        """Remove what was built, if it was not put in place; this may be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def staged_directory(target: Path) -> Iterator[Path]:
    """Yield a directory to fill that appears at `target`, replacing what is there, when the block succeeds."""
    staging = StagedDirectory(target, identity(target))
    try:
        with explain_write_errors(staging.target):
            yield staging.path
        staging.commit()
    finally:
        staging.discard()


@contextmanager
def exclusive(folder: Path, purpose: str) -> Iterator[None]:
    """Lock a folder against other processes; the lock ends with this process, however it ends."""
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    with lock as file:
        if os.name == "posix":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise DatasetExists(f"another process is {purpose}; wait for it, or choose another path") from error
        yield


def link_or_copy(source: Path, destination: Path) -> None:
    """Share a file that will never be modified in place; copy where the file system has no hard links."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)


def _beside(target: Path) -> Path:
    """Return a free path next to `target`, after removing those that killed processes of this machine left."""
    # Host and process are in the name, because on a shared file system only the owner's machine can tell if it lives.
    prefix = f".{target.stem[:100]}.partial-{socket.gethostname()}-"
    for left in target.parent.glob(f"{_escaped(prefix)}*"):
        owner = left.name.removeprefix(prefix).split("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    return target.with_name(f"{prefix}{os.getpid()}-{secrets.token_hex(4)}{target.suffix}")


def _escaped(text: str) -> str:
    """Return text whose special characters stand for themselves in a glob pattern."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


def _sync(path: Path) -> None:
    """Wait until a file's contents, or a directory's entries, are on the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open directories
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # file systems without fsync for this kind of file
            raise
    finally:
        os.close(handle)


def _exchange(first: Path, second: Path) -> None:
    """Swap two paths: in one system call on Linux (RENAME_EXCHANGE), else by renaming the old one out of the way."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name == "posix" else None
    if renameat2 is not None:
        current_directory = -100  # AT_FDCWD of fcntl.h
        exchange = 2  # RENAME_EXCHANGE of linux/fs.h
        if renameat2(current_directory, os.fsencode(first), current_directory, os.fsencode(second), exchange) == 0:
            return
    previous = second.with_name(f".{second.name}.previous-{os.getpid()}")
    second.rename(previous)
    try:
        first.rename(second)
    except BaseException:
        previous.rename(second)
        raise
    previous.rename(first)


def _is_alive(process: int) -> bool:
    """Return whether a process of this machine exists; signal 0 only asks."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it exists, but belongs to somebody else
        return True
    return True
