"""One study at smoke scale, which all tests of experiments add to: what one has run, the next finds done."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smoke_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The --out of `oat reproduce --scale smoke`."""
    return tmp_path_factory.mktemp("reproduce")
