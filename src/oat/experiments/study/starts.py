"""Keep stored starts with the study whose episodes begin there, so that it can be continued on another machine."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oat.sims import STARTS_VARIABLE

STARTS_FOLDER = "starts"


def with_starts(folder: Path, function: Callable[..., None], *values: Any) -> None:
    """Call a function while simulators take stored starts from a study's folder, and copy there what it lacks."""
    before = os.environ.get(STARTS_VARIABLE)
    # Simulators run in processes of their own, which inherit it.
    os.environ[STARTS_VARIABLE] = str(folder / STARTS_FOLDER)
    try:
        function(*values)
    finally:
        del os.environ[STARTS_VARIABLE]
        if before is not None:
            os.environ[STARTS_VARIABLE] = before
