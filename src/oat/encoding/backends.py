"""Where parts are written: in this process, in several of this machine, or by Ray Data on a cluster."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from typing import Any

from oat.encoding.config import Backend
from oat.encoding.parts import PartJob, PartWriter
from oat.errors import OatError, WorkersFailed
from oat.io.cluster import connect, count_processes
from oat.io.extras import import_extra
from oat.io.processes import worker_pool


def write_parts(
    job: PartJob, parts: Sequence[int], workers: int | None, backend: Backend, address: str | None
) -> Iterator[int]:
    """Write parts in any order, and yield the number of chunks of each as it is done."""
    if not parts:
        return iter(())
    if backend == "ray":
        return _on_cluster(job, parts, workers, address)
    processes = min(workers or os.cpu_count() or 1, len(parts))
    return _in_processes(job, parts, processes) if processes > 1 else map(job.open().write, parts)


@lru_cache(maxsize=1)
def _opened(job: PartJob) -> PartWriter:
    """Open a job once in each process."""
    return job.open()


def _write_part(job: PartJob, part: int) -> int:
    return _opened(job).write(part)


def _in_processes(job: PartJob, parts: Sequence[int], processes: int) -> Iterator[int]:
    try:
        with worker_pool(processes) as pool:
            for done in as_completed([pool.submit(_write_part, job, part) for part in parts]):
                yield done.result()
    except BrokenProcessPool as error:
        raise WorkersFailed(
            "a worker process died (out of memory?); finished parts are kept, run the same command to continue"
        ) from error


class RayWriter:
    """Write parts in an actor of a Ray cluster."""

    def __init__(self, job: PartJob) -> None:
        self._writer = job.open()

    def __call__(self, row: dict[str, Any]) -> dict[str, int]:
        return {"chunks": self._writer.write(int(row["part"]))}


def _on_cluster(job: PartJob, parts: Sequence[int], workers: int | None, address: str | None) -> Iterator[int]:
    with connect(address) as ray:
        data: Any = import_extra("ray.data", "ray")
        context = data.DataContext.get_current()
        context.enable_progress_bars = False  # ours is shown
        actors = min(count_processes(ray, workers), len(parts))
        rows = data.from_items([{"part": part} for part in parts], override_num_blocks=len(parts))
        written = rows.map(RayWriter, fn_constructor_args=(job,), concurrency=actors, num_cpus=1)
        try:
            for row in written.iter_rows():
                yield int(row["chunks"])
        except OatError:
            raise
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise WorkersFailed(f"the cluster failed ({reason}); finished parts are kept") from error
