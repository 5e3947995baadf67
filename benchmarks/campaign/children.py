"""Run a function in a child that cannot harm: it may crash, hang, take all memory or be killed, and that is noticed.

A child is forked from a process that has imported everything and computed nothing, so that it starts in milliseconds.
"""

import atexit
import ctypes
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.campaign.trial import Broken

_RAW = 70  # the status of a child that ended by an exception
_SET_DEATH_SIGNAL = 1  # of prctl
_ORPHAN_SECONDS = 10.0  # in which the processes of a child that ended must end, too
_ALLOCATOR = "jemalloc_bg_thd"  # Arrow's, which is ready for forks
_MOST_SAID = 2**20
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Interruption:
    """Say when a child is interrupted, how, and whether its own children are, too."""

    seconds: float
    number: signal.Signals
    group: bool


@dataclass(frozen=True)
class Ended:
    """Tell how a child ended."""

    status: int
    """Negative for a signal."""
    output: str
    seconds: float
    hung: bool
    orphans: bool
    """Whether processes that it started outlived it."""
    answer: Any

    def check(self) -> "Ended":
        """Raise `Broken` for a child that hung, crashed, left processes behind or printed a traceback."""
        if self.hung:
            raise Broken(f"hung for {self.seconds:.0f} s")
        if self.orphans:
            raise Broken("processes outlived their parent")
        # Whoever is killed cannot keep processes that are just starting from complaining.
        if self.status != -signal.SIGKILL and ("Traceback" in self.output or self.status == _RAW):
            raise Broken("raw traceback: " + " | ".join(self.output.strip().splitlines()[-4:])[-600:])
        if self.status < 0 and self.status not in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT):
            raise Broken(f"crashed by {signal.Signals(-self.status).name}")
        return self


def call(
    function: Callable[[], Any],
    seconds: float = 60.0,
    memory: int | None = None,
    interruption: Interruption | None = None,
) -> Ended:
    """Return how a function ended in a child of its own, which is ended after some seconds.

    Its answer must be JSON. `memory` limits how many bytes it may take beyond what this process has.
    """
    folder = Path(tempfile.mkdtemp(prefix="oat-child-"))  # a TemporaryDirectory would end with the child, too
    answer = folder / "answer"
    heard, told = os.pipe()  # a file could be what may not grow
    fcntl.fcntl(told, fcntl.F_SETPIPE_SZ, _MOST_SAID)
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(heard)
        _be_child(function, told, answer, memory)
    os.close(told)
    hung = _interrupt_and_wait(child, seconds, interruption)
    _, waited = os.waitpid(child, 0)
    orphans = not hung and not _gone(child)
    if hung or orphans:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    said = os.read(heard, _MOST_SAID).decode("utf-8", "replace")
    os.close(heard)
    ended = Ended(
        os.waitstatus_to_exitcode(waited),
        said,
        time.monotonic() - begin,
        hung,
        orphans,
        json.loads(answer.read_text()) if answer.exists() else None,
    )
    shutil.rmtree(folder)
    return ended


def _interrupt_and_wait(child: int, seconds: float, interruption: Interruption | None) -> bool:
    """Return whether a child had to be killed because it did not end in time."""
    handle = os.pidfd_open(child)
    try:
        if interruption is not None and not select.select([handle], [], [], interruption.seconds)[0]:
            send = os.killpg if interruption.group else os.kill
            send(child, interruption.number)
        if select.select([handle], [], [], seconds)[0]:
            return False
        os.killpg(child, signal.SIGKILL)
        return True
    finally:
        os.close(handle)


def _gone(group: int) -> bool:
    """Return whether all processes of a group ended within some seconds."""
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def _be_child(function: Callable[[], Any], told: int, answer: Path, memory: int | None) -> None:
    """Run the function and end this process, as the interpreter would end it."""
    status = _RAW
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        for stream in (1, 2):
            os.dup2(told, stream)
        sys.modules["__main__"] = types.ModuleType("__main__")  # processes that it starts need not import the campaign
        if memory is not None:
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
            resource.setrlimit(resource.RLIMIT_AS, (taken + memory, taken + memory))
        given = function()
        answer.write_text(json.dumps(given))
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
    finally:
        os._exit(status)


def check_single_threaded() -> None:
    """Raise where this process has threads: a fork would leave their locks held forever."""
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    threads = [name for name in names if name != _ALLOCATOR]
    assert len(threads) == 1, f"a campaign must fork from one thread, this process has {names}"
