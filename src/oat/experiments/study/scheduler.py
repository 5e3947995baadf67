"""Perform runs in the order of their needs, several at a time, in processes of this machine or on a Ray cluster."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager

from rich.console import Console

from oat.errors import OatError
from oat.experiments.config import ReproduceConfig
from oat.experiments.study.runs import Run, last_step
from oat.io import cluster
from oat.io.processes import worker_pool
from oat.io.progress import Progress, progress_bar

Submit = Callable[..., "Future[None]"]
_GLANCE = 2.0  # seconds between looks at what is going on


class RunFailed(OatError):
    """Raised after all other runs have ended, if at least one run of an experiment failed."""


@contextmanager
def open_workers(config: ReproduceConfig) -> Iterator[Submit]:
    """Yield a function that runs another one in a worker process, or on the cluster, and returns its future."""
    if config.backend == "ray":
        with cluster.connect(config.address) as ray:
            yield lambda function, *values: ray.remote(num_cpus=1)(function).remote(*values).future()
    else:
        with worker_pool(config.jobs) as pool:
            yield pool.submit


def perform_all(runs: Sequence[Run], submit: Submit, jobs: int, read: Sequence[str] = ()) -> None:
    """Do the runs that are not done yet; what fails does not stop what does not need it.

    What these read, or what is named in `read`, is made again where it is done but no longer here: so a study can be
    continued from what was published of it.
    """
    for run in _lost(runs, read):
        run.make_again()
    waiting = [run for run in runs if not run.done]
    if not waiting:
        return
    finished = {run.name for run in runs if run.done}
    failures: dict[str, BaseException] = {}
    going: dict[Future[None], Run] = {}
    console = Console(stderr=True, soft_wrap=True)
    with progress_bar("runs", len(runs), len(finished)) as bar:
        while waiting or going:
            ready = [run for run in waiting if finished.issuperset(run.needs)][: jobs - len(going)]
            for run in ready:
                waiting.remove(run)
                going[submit(_perform_logged, run)] = run
            if not going:
                break  # all that waits needs what failed
            ended, _ = wait(going, _GLANCE, FIRST_COMPLETED)
            for future in ended:
                run = going.pop(future)
                error = future.exception()
                if error is None:
                    finished.add(run.name)
                    bar.advance()
                    console.print(f"done: {run.command}", highlight=False, markup=False)
                else:
                    failures[run.name] = error
            _show(bar, list(going.values()))
    if failures:
        logs = runs[0].log.parent
        raise RunFailed(
            f"{len(failures)} of {len(runs)} runs failed ({_reasons(failures)}), their logs are in {logs}, "
            f"{len(waiting)} that need them were not begun; the same command tries again"
        )


def _lost(runs: Sequence[Run], read: Sequence[str]) -> list[Run]:
    """Return the lost results that runs which are not done read, or that are read to make those again."""
    by_name = {run.name: run for run in runs}
    found: dict[str, Run] = {}
    to_look_at = [*read, *(need for run in runs if not run.done for need in run.needs)]
    while to_look_at:
        run = by_name[to_look_at.pop()]
        if run.lost and run.name not in found:
            found[run.name] = run
            to_look_at.extend(run.needs)
    return list(found.values())


def _reasons(failures: Mapping[str, BaseException]) -> str:
    """Return why runs failed, each reason once: runs that read the same files often fail alike."""
    alike: dict[str, list[str]] = {}
    for name, error in failures.items():
        alike.setdefault(_first_line(error), []).append(name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in alike.items())


def _first_line(error: BaseException) -> str:
    raised = getattr(error, "cause", error)  # Ray's errors are tracebacks around what was raised
    return next(iter(str(raised).strip().splitlines()), type(raised).__name__)


def _show(bar: Progress, going: Sequence[Run]) -> None:
    bar.advance(0, " · ".join(run.name + _progress(run) for run in going))


def _progress(run: Run) -> str:
    """Return how far a training is, in percent, for the progress bar."""
    steps = getattr(getattr(run.config, "recipe", None), "steps", None)
    done = last_step(run.config.out)
    return f" {done / steps:.0%}" if steps and done else ""


def _perform_logged(run: Run) -> None:
    """Do a run in a worker process; all that it prints goes to the run's log."""
    run.log.parent.mkdir(parents=True, exist_ok=True)
    with run.log.open("ab") as log, _redirected(log.fileno()):
        log.write(f"{run.command}\n".encode())
        log.flush()
        run.perform()


@contextmanager
def _redirected(target: int) -> Iterator[None]:
    """Send standard output and error elsewhere, those of child processes, too."""
    # File descriptors, and not sys.stdout: libraries and child processes write to those.
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    try:
        for stream in kept:
            os.dup2(target, stream)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, before in kept.items():
            os.dup2(before, stream)
            os.close(before)
