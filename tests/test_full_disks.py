"""A disk that is full, read-only or forbidden is told in one line, wherever it is noticed."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from oat.io.write_errors import explained

_LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))  # files cannot grow past this
from oat.cli import main
main(sys.argv[2:])
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    actions = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    np.savez(tmp_path / "data.npz", actions=actions, episode_ends=[100, 200])
    return tmp_path / "data.npz"


def _told(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of what was said, which is the only one beside a progress bar."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    return next(line for line in done.stderr.splitlines() if line.startswith("error: "))


@pytest.mark.parametrize("limit", [100, 20_000])
def test_a_training_that_fills_the_disk_says_so(limit: int, data: Path, tmp_path: Path) -> None:
    """Whichever comes first: the log, TensorBoard's thread, the weights or the state."""
    fit = ["fit", "--tokenizer", "quest", "--preset", "tiny", "--action-horizon", "8", "--batch-size", "4"]
    fit += ["--data", str(data), "--out", str(tmp_path / "run"), "--steps", "2", "--validate-every", "2"]
    command = [sys.executable, "-c", _LIMITED, str(limit), *fit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "the disk is full" in _told(done)
    assert not (tmp_path / "run" / "last").exists()


def test_output_that_cannot_be_written_is_told(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from oat.cli import main; main()", "inspect", str(data), "--json"]
    command += ["--picture", str(tmp_path / "p.png")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=-1, text=True, check=False)
    assert "the disk is full" in _told(done)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM])
def test_refusals_are_explained_and_other_errors_are_not(number: int) -> None:
    told = explained(OSError(number, os.strerror(number), "/some/file"))
    assert told is not None
    assert "/some/file" in str(told)
    assert explained(OSError(errno.ECONNRESET, "reset")) is None
