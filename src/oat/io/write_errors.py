"""The one place that turns the operating system's refusal to write into an error that says what to do."""

import errno
import os
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
