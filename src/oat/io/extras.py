"""Optional dependencies, imported when first needed; a missing one names the extra to install."""

import importlib
from types import ModuleType

from oat.errors import MissingExtra


def import_extra(module: str, extra: str) -> ModuleType:
    """Import `module`; raise `MissingExtra`, which names the extra to install, if it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise MissingExtra(
            f"this needs the Python package {missing!r}, which is not installed: pip install 'oat[{extra}]'"
        ) from error
