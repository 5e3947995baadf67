"""One small study for all tests of experiments: every method, trained for a moment and let act."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from oat.experiments.config import ReproduceConfig
from oat.experiments.reproduce import reproduce


@pytest.fixture(scope="session")
def smoke_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The OUT of a finished `oat reproduce table-sim --scale smoke`; processes that test in parallel share the work."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with (shared / "smoke-study.lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        patch.setenv("OAT_CACHE_DIR", str(shared / "smoke-cache"))
        reproduce(ReproduceConfig(("table-sim",), scale="smoke", out=shared / "smoke-study", jobs=2))
    return Path(shutil.copytree(shared / "smoke-study", own / "own-smoke-study"))
