"""Fields that a configuration got after checkpoints of it had been published."""

from dataclasses import Field, field
from typing import Any

_ADDED = "added after checkpoints were published"


def added(default: Any) -> Any:
    """Return a dataclass field that files leave out where it has its default.

    Older versions refuse a field that they do not know, and so would a run that one of them began when it is resumed.
    """
    return field(default=default, metadata={_ADDED: True})


def is_stored(each: Field[Any], value: Any) -> bool:
    """Return whether files hold this value of a field."""
    return not (_ADDED in each.metadata and value == each.default)
