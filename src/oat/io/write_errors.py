"""The one place that turns the operating system's refusal to write into an error that says what to do."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oat.errors import WriteFailed

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


@contextmanager
def explain_write_errors(target: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write into an error that says what to do."""
    try:
        yield
    except OSError as error:
        reason, remedy = _explain(error)
        raise WriteFailed(
            f"cannot write {target}: {reason}. Nothing that existed before was changed; {remedy}."
        ) from error


def explained(error: OSError) -> WriteFailed | None:
    """Return the error for a full disk, a read-only one or a missing permission, met anywhere; None for any other."""
    if not (_is_full(error) or error.errno in (*_FORBIDDEN, errno.EROFS)):
        return None
    reason, remedy = _explain(error)
    return WriteFailed(f"cannot use {error.filename or 'the output'}: {reason}; {remedy}")


def leave_refusals_to_callers() -> None:
    """Let threads of libraries end without a traceback where a write was refused: those who wait for them are told."""
    usual = threading.excepthook

    def hook(told: threading.ExceptHookArgs) -> None:
        if not (isinstance(told.exc_value, OSError) and explained(told.exc_value)):
            usual(told)

    threading.excepthook = hook


def _is_full(error: OSError) -> bool:
    return "No space left" in str(error) or error.errno in _FULL  # Arrow keeps the number only in its text


def _explain(error: OSError) -> tuple[str, str]:
    """Return why a write was refused, and what can be done."""
    if _is_full(error):
        return "the disk is full", "free some space and run again"
    if error.errno in _FORBIDDEN:
        return os.strerror(error.errno), "check the owner and mode of its directory"
    return error.strerror or str(error), "choose another place"
