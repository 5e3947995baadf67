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

from oat.errors import WriteFailed

_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "free some space",
    errno.EACCES: "check the owner and mode of its directory",
    errno.EPERM: "check the owner and mode of its directory",
    errno.EROFS: "choose another place",
    errno.ENOTDIR: "choose another place",
    errno.EEXIST: "choose another place",
}


@contextmanager
def explain_write_errors(target: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write into an error that says what to do."""
    try:
        yield
    except OSError as error:
        number = errno.ENOSPC if "No space left" in str(error) else error.errno  # Arrow keeps it only in the text
        if number not in _REMEDIES:
            raise
        reason = "the disk is full" if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else os.strerror(number)
        raise WriteFailed(
            f"cannot write {target}: {reason}. Nothing that existed before was changed; "
            f"{_REMEDIES[number]} and run again."
        ) from error


@contextmanager
def staged_file(target: Path, durable: bool = True) -> Iterator[Path]:
    """A temporary path beside `target` that replaces it when the block succeeds and vanishes when it fails.

    A durable file survives a power failure, too, at the price of waiting for the disk.
    """
    with explain_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = target.with_name(f".{target.stem}.partial-{os.getpid()}-{secrets.token_hex(4)}{target.suffix}")
        try:
            yield staging
            if durable:
                _sync(staging)
            staging.replace(target)
        finally:
            staging.unlink(missing_ok=True)


class StagedDirectory:
    """A directory built beside `target`; `commit` puts it in target's place at once, `discard` removes it."""

    def __init__(self, target: Path) -> None:
        self.target = target.absolute()
        with explain_write_errors(self.target):
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self._remove_abandoned()
            self.path = self.target.with_name(f"{self._prefix}{os.getpid()}-{secrets.token_hex(4)}")
            self.path.mkdir()

    @property
    def _prefix(self) -> str:
        return f".{self.target.name}.partial-{socket.gethostname()}-"

    def _remove_abandoned(self) -> None:
        """Delete what writers of this host left behind when they were killed."""
        for left in self.target.parent.glob(f"{self._prefix}*"):
            owner = left.name.removeprefix(self._prefix).split("-")[0]
            if owner.isdigit() and not _is_alive(int(owner)):
                shutil.rmtree(left, ignore_errors=True)

    def commit(self) -> None:
        """Make the directory appear at `target`, replacing what is there in one step."""
        with explain_write_errors(self.target):
            for file in self.path.rglob("*"):
                if file.is_file():
                    _sync(file)
            if self.target.exists():
                _exchange(self.path, self.target)
                shutil.rmtree(self.path, ignore_errors=True)
            else:
                self.path.rename(self.target)
            _sync(self.target.parent)

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def staged_directory(target: Path) -> Iterator[Path]:
    """A directory to fill that appears at `target` when the block succeeds and vanishes when it fails."""
    staging = StagedDirectory(target)
    try:
        with explain_write_errors(staging.target):
            yield staging.path
        staging.commit()
    except BaseException:
        staging.discard()
        raise


def link_or_copy(source: Path, destination: Path) -> None:
    """Share a file that will never be modified in place; copy where the file system has no hard links."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)


def _sync(path: Path) -> None:
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
        current_directory, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
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
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
