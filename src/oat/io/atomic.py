"""Files and directories that are either complete or absent: written beside their place, then renamed into it."""

import ctypes
import errno
import hashlib
import os
import secrets
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from oat.errors import DatasetExists
from oat.io.locks import Lock
from oat.io.write_errors import explain_write_errors


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


def identity(path: Path) -> str | None:
    """Return text that changes with a directory and with any file below it; None when there is nothing."""
    # Inodes, because a directory that is renamed into the same place has another one; sizes and times, because
    # other programs write into directories where they are.
    try:
        inode = path.stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
    digest = hashlib.blake2b(str(inode).encode(), digest_size=16)
    for file in sorted(path.rglob("*")):
        status = file.lstat()
        if not stat.S_ISDIR(status.st_mode):
            described = (str(file.relative_to(path)), status.st_ino, status.st_size, status.st_mtime_ns)
            digest.update(repr(described).encode())
    return digest.hexdigest()


class StagedDirectory:
    """Build a directory beside `target`; `commit` puts it in target's place at once, `discard` removes it.

    Until then no other process of ours can stage the same target. Others do not ask: if the target is not what it was
    when this began, `commit` refuses, and what is there stays.
    """

    def __init__(self, target: Path) -> None:
        self.target = target.resolve()
        self._lock = Lock(self.target.with_name(f".{self.target.name[:100]}.lock"), f"writing {target}")
        with explain_write_errors(self.target):
            self._replaces = identity(self.target)

    @cached_property
    def path(self) -> Path:
        """Return the directory to fill, which is made when it is first asked for."""
        with explain_write_errors(self.target):
            path = _beside(self.target)
            path.mkdir()
        return path

    def check(self) -> None:
        """Raise `DatasetExists` if the target is not what it was when the staging began."""
        if identity(self.target) != self._replaces:
            raise self._changed()

    def commit(self) -> None:
        """Make the directory appear at `target`; raise `DatasetExists` if another process changed it meanwhile."""
        with explain_write_errors(self.target):
            # Contents first: after a power failure, a renamed directory must not hold empty files.
            for file in self.path.rglob("*"):
                if file.is_file():
                    _sync(file)
            self.check()
            if self._replaces is None:
                self._move()
            else:
                self._swap()
            _sync(self.target.parent)  # the renaming itself is an entry of the parent directory
        self._lock.release()

    def _move(self) -> None:
        try:
            self.path.rename(self.target)  # fails if there is a directory with something in it
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise self._changed() from error
            raise

    def _swap(self) -> None:
        _exchange(self.path, self.target)
        if identity(self.path) != self._replaces:  # not the one we read: put it back
            _exchange(self.path, self.target)
            raise self._changed()
        shutil.rmtree(self.path, ignore_errors=True)

    def _changed(self) -> DatasetExists:
        return DatasetExists(f"{self.target} was changed by another process in the meantime; it was left as it is")

    def discard(self) -> None:
        """Remove what was built, if it was not put in place, and free the target; this may be called twice."""
        if "path" in self.__dict__:  # not asked for in vain: it would be made only to be removed
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


@contextmanager
def staged_directory(target: Path) -> Iterator[Path]:
    """Yield a directory to fill that appears at `target`, replacing what is there, when the block succeeds."""
    staging = StagedDirectory(target)
    try:
        with explain_write_errors(staging.target):
            yield staging.path
        staging.commit()
    finally:
        staging.discard()


def new_file(path: Path) -> Path:
    """Return the path, at which there is now a new empty file; one that is there already is refused, not opened.

    What lies in a staged directory may be a link to a file of the set that it continues.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(exist_ok=False)
    return path


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
