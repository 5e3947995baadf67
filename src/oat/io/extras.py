"""Optional dependencies, imported when first needed; a missing one names the extra to install."""

import importlib
from types import ModuleType

from oat.errors import MissingExtra

DISTRIBUTION = "ordered-action-tokenization"
"""Name that `pip install` needs; `oat` on PyPI belongs to another project."""


def import_extra(module: str, extra: str) -> ModuleType:
    """Import `module`; raise `MissingExtra`, which names the extra to install, if it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or module  # the package may be there, and lack one that it needs itself
        raise MissingExtra(
            f"this needs the Python package {missing!r}, which is not installed: pip install '{DISTRIBUTION}[{extra}]'"
        ) from error
