"""A command that is killed or interrupted leaves no process behind, and an interruption is told in one line."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

_OAT = [sys.executable, "-c", "from oat.cli import main; main()"]
_EVALUATE = """
import sys, time
from pathlib import Path
from functools import partial
from oat.evaluation.workers.processes import LocalProcesses
from oat.evaluation.workers.worker import Reset
from oat.protocol import Protocol
from tests.test_interruptions import SleepingEnv

link = LocalProcesses(Protocol("sleep", 1, "never"), partial(SleepingEnv, Path(sys.argv[1]))).open()
link.post(0, Reset("reach", 1))
time.sleep(100)
"""


class SleepingEnv:
    """Take longer for an episode than anybody waits."""

    def __init__(self, folder: Path, protocol: object, task: str) -> None:
        self._folder = folder

    def reset(self, condition: int) -> dict[str, np.ndarray]:
        (self._folder / "asleep").touch()
        time.sleep(100)
        return {}


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that leads a group of its own, of which nothing is left afterwards in any case."""
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True)
    try:
        yield process
    finally:
        if _group_exists(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _wait(happened: Callable[[], object], seconds: float) -> None:
    """Return when it has happened; fail when it does not."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _training(folder: Path, workers: int) -> list[str]:
    actions = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    np.savez(folder / "data.npz", actions=actions, episode_ends=[100, 200])
    command = [*_OAT, "fit", "--tokenizer", "quest", "--data", str(folder / "data.npz"), "--out", str(folder / "run")]
    command += ["--preset", "tiny", "--action-horizon", "8", "--steps", "100000", "--batch-size", "4"]
    return [*command, "--workers", str(workers), "--validate-every", "2"]


def _begun(folder: Path) -> Callable[[], object]:
    return (folder / "run" / "last").exists


def test_workers_that_read_ahead_end_with_the_training(tmp_path: Path) -> None:
    with _running(_training(tmp_path, workers=2)) as training:
        _wait(_begun(tmp_path), 120)
        os.kill(training.pid, signal.SIGKILL)
        training.wait(20)
        _wait(lambda: not _group_exists(training.pid), 20)


def test_simulators_end_with_the_evaluation(tmp_path: Path) -> None:
    """Even in the middle of something that takes long."""
    with _running([sys.executable, "-c", _EVALUATE, str(tmp_path)]) as evaluation:
        _wait((tmp_path / "asleep").exists, 60)
        os.kill(evaluation.pid, signal.SIGKILL)
        evaluation.wait(10)
        _wait(lambda: not _group_exists(evaluation.pid), 10)


@pytest.mark.parametrize(
    ("send", "number", "status"),
    [
        pytest.param(os.killpg, signal.SIGINT, 130, id="Ctrl-C"),  # a terminal sends it to all processes
        pytest.param(os.kill, signal.SIGTERM, 143, id="kill"),
        pytest.param(os.killpg, signal.SIGTERM, 143, id="systemd"),
    ],
)
def test_an_interrupted_training_says_so_in_one_line(
    send: Callable[[int, int], None], number: signal.Signals, status: int, tmp_path: Path
) -> None:
    with _running(_training(tmp_path, workers=1)) as training:
        _wait(_begun(tmp_path), 120)
        send(training.pid, number)
        _, errors = training.communicate(timeout=20)
        assert training.returncode == status
        assert [line for line in errors.splitlines() if "interrupted" in line] == errors.strip().splitlines()[-1:]
        assert "Traceback" not in errors
        _wait(lambda: not _group_exists(training.pid), 20)


def test_processes_do_not_see_ctrl_c_while_they_start(tmp_path: Path) -> None:
    """Importing takes seconds, in which a process has not yet said that it leaves Ctrl-C to its parent."""
    arguments = ["collect", "metaworld", "--tasks", "reach", "--episodes", "500", "--workers", "2"]
    with _running([*_OAT, *arguments, "--out", str(tmp_path / "set")]) as collecting:
        children = Path(f"/proc/{collecting.pid}/task/{collecting.pid}/children")
        _wait(lambda: len(children.read_text().split()) >= 3, 60)  # two workers, and the tracker of resources
        os.killpg(collecting.pid, signal.SIGINT)
        _, errors = collecting.communicate(timeout=20)
        assert collecting.returncode == 130
        assert "Traceback" not in errors
        assert len(errors.strip().splitlines()) <= 2  # the progress bar's and ours
        _wait(lambda: not _group_exists(collecting.pid), 20)


def test_the_death_of_a_worker_is_told_in_one_line(tmp_path: Path) -> None:
    with _running(_training(tmp_path, workers=1)) as training:
        _wait(_begun(tmp_path), 120)
        children = Path(f"/proc/{training.pid}/task/{training.pid}/children").read_text().split()
        (worker,) = (int(child) for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text())
        os.kill(worker, signal.SIGKILL)
        _, errors = training.communicate(timeout=20)
        assert training.returncode == 1
        assert "error: a process that reads demonstrations died" in errors
        assert "Traceback" not in errors
