"""Annotations that say how a field of a configuration appears on the command line, if not under its own name."""

from typing import Any

import tyro

HIDDEN: Any = tyro.conf.Suppress
"""The annotation of a field that follows from others, and is therefore not an option."""
POSITIONAL: Any = tyro.conf.Positional
"""The annotation of a field that is given without a flag."""


def flag(name: str) -> Any:
    """Return the annotation that gives a field this name on the command line."""
    return tyro.conf.arg(name=name)
