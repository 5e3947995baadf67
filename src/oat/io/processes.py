"""Processes that end when they must: single-threaded workers that never outlive their parent."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor


@contextlib.contextmanager
def worker_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose processes are ended at once when the block is left by an error or Ctrl-C."""
    spawn = multiprocessing.get_context("spawn")  # a fork would carry over graphics contexts and file handles
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(processes, spawn, _start_worker)
    with single_threaded():
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise
        pool.shutdown()


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


def _start_worker() -> None:
    """Prepare a worker: leave Ctrl-C to the parent, and exit as soon as the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all processes of the group
    parent = multiprocessing.parent_process()
    assert parent is not None

    def exit_with_parent() -> None:
        # A killed parent cannot end its workers: each of them must notice.
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
