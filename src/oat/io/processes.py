"""Processes that end when they must: single-threaded workers that never outlive their parent."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import resource_tracker
from typing import Any

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def worker_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose processes are ended at once when the block is left by an error or Ctrl-C."""
    spawn = multiprocessing.get_context("spawn")  # a fork would carry over graphics contexts and file handles
    others = set(multiprocessing.active_children())
    pool = _Pool(processes, spawn, start_worker)
    with single_threaded():
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()
            raise
        pool.shutdown()


class _Pool(ProcessPoolExecutor):
    """Start processes as they are needed, which is while a task is submitted."""

    def submit(self, *values: Any, **named: Any) -> "Future[Any]":
        with interrupts_for_us_only():
            return super().submit(*values, **named)


@contextlib.contextmanager
def interrupts_for_us_only() -> Iterator[None]:
    """Keep Ctrl-C and SIGTERM from processes that are started inside the block; this one gets them when it ends.

    A terminal and systemd send them to all processes of a group. One that is still importing could only print a
    traceback, and if it ended before this one, that would be told as its death.
    """
    if os.name != "posix":
        yield
        return
    resource_tracker.ensure_running()  # while it starts, it would undo what follows
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)  # processes begin with their parent's mask
    try:
        with _later_interrupts():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _later_interrupts() -> Iterator[None]:
    """Put off the handling of signals: a process that is left half-started would complain."""
    if threading.current_thread() is not threading.main_thread():  # which alone handles signals
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


@contextlib.contextmanager
def single_threaded() -> Iterator[None]:
    """Let processes that are started inside the block use one thread for numerics."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # workers as many as cores, each with as many threads, would hinder each other
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def leave_within(seconds: float, status: int) -> None:
    """End this process some seconds after its main thread ended, even if another thread never does.

    An interruption can strike between a lock's acquisition and its release; a thread that waits for it waits forever.
    """

    def leave() -> None:
        threading.main_thread().join()
        time.sleep(seconds)
        os._exit(status)

    threading.Thread(target=leave, daemon=True).start()


def start_worker(*_: object) -> None:
    """Prepare a process that another one started: leave interruptions to the parent, and exit as soon as it is gone.

    Every process that we start calls this first; what libraries call it with, such as a number, is of no interest.
    """
    for number in _INTERRUPTS:  # which are sent to all processes of a group
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def exit_with_parent() -> None:
        # A killed parent cannot end its workers: each of them must notice.
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
