"""Read the logs of training runs, thinned to what a picture can show."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oat.errors import CorruptDataset
from oat.io.checkpoints import LOG_FILE, checkpoint_kind, find_checkpoint
from oat.policies import POLICIES
from oat.report.results_folder import ResultsFolder
from oat.tokenizers import TOKENIZERS

RUN_GROUPS = ("tokenizers", "policies", "runs without a checkpoint yet")
_MOST_POINTS = 300  # of a curve: more cannot be told apart, and the page would grow by megabytes
# These tell of the machine and not of the model, so that a curve of them would mislead.
_NOT_MEASURES = {"step", "chunks_per_s", "processes", "seconds", "processor_seconds"}


@dataclass(frozen=True)
class Curve:
    """Hold one measure that one run logged, step by step."""

    run: str
    group: str
    """Kind of thing that the run trains: one of RUN_GROUPS."""
    measure: str
    steps: list[float]
    values: list[float]


def read_training_curves(folder: ResultsFolder) -> list[Curve]:
    """Read the curves of all runs; their names are unique among the runs of one group only."""
    curves = []
    for group in RUN_GROUPS:
        runs = [run for run in folder.runs if _group_of(run) == group]
        for path, name in folder.short_names(runs).items():
            with folder.noting_problems():
                curves += read_curves(name, group, path)
    return curves


def read_curves(run: str, group: str, directory: Path) -> list[Curve]:
    """Read every measure that a run logged."""
    file = directory / LOG_FILE
    series: dict[str, list[tuple[float, float]]] = {}
    for number, line in enumerate(file.read_bytes().splitlines(keepends=True), start=1):
        # A run that was killed may have cut its last line short.
        if not line.endswith(b"\n"):
            break
        try:
            logged = json.loads(line)
            step = float(logged["step"])
            for measure, value in logged.items():
                if measure not in _NOT_MEASURES and math.isfinite(value):
                    series.setdefault(measure, []).append((step, value))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptDataset(f"{file}, line {number}: not a line of a training log ({error})") from error
    return [_thin_curve(run, group, measure, points) for measure, points in series.items()]


def _group_of(run: Path) -> str:
    """Return which of RUN_GROUPS a run belongs to, from the kind of its checkpoint."""
    kind = checkpoint_kind(find_checkpoint(run))
    if kind in TOKENIZERS:
        return RUN_GROUPS[0]
    return RUN_GROUPS[1] if kind in POLICIES else RUN_GROUPS[2]


def _thin_curve(run: str, group: str, measure: str, points: Sequence[tuple[float, float]]) -> Curve:
    """Keep every so many points and the last one, with as many digits as can be seen."""
    every = math.ceil(len(points) / _MOST_POINTS)
    kept = [*points[:-1:every], points[-1]]
    return Curve(run, group, measure, [step for step, _ in kept], [float(f"{value:.4g}") for _, value in kept])
