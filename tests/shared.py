"""What is expensive to make is made once per test run: processes that test in parallel share it."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

_folders: list[Path] = []  # one, as soon as tests run


def begin_sharing(factory: pytest.TempPathFactory) -> None:
    """Choose the directory that all processes of this run see, which pytest removes some runs later."""
    own = factory.getbasetemp()
    _folders[:] = [own.parent if "PYTEST_XDIST_WORKER" in os.environ else own]


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return what `make` put at a path of this name, in whichever process came first; nobody may change it."""
    (folder,) = _folders
    path = folder / f"shared-{name}"
    finished = folder / f"shared-{name}.finished"
    with (folder / f"shared-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            shutil.rmtree(path, ignore_errors=True)
            make(path)
            finished.touch()
    return path
