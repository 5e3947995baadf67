"""The logs of training runs, thinned to what a picture can show."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from oat.errors import CorruptDataset
from oat.io.checkpoints import checkpoint_kind, find_checkpoint
from oat.policies import POLICIES
from oat.report.loaded import LOG_FILE, Findings
from oat.tokenizers import TOKENIZERS

STAGES = ("tokenizers", "policies", "runs without a checkpoint yet")
_POINTS = 300
_ABOUT_THE_MACHINE = {"step", "chunks_per_s", "processes", "seconds", "processor_seconds"}


@dataclass(frozen=True)
class Curve:
    """One measure of one run."""

    run: str
    stage: str
    """What is trained: one of STAGES."""
    measure: str
    steps: list[float]
    values: list[float]


def training_curves(found: Findings) -> list[Curve]:
    """Of all runs; names need to be unique only among runs of one stage."""
    curves = []
    for stage in STAGES:
        runs = [run for run in found.runs if _stage(run) == stage]
        for path, name in found.names(runs).items():
            with found.noting_problems():
                curves += read_curves(name, stage, path)
    return curves


def read_curves(run: str, stage: str, folder: Path) -> list[Curve]:
    """Every measure that the run logged; a last line that a kill cut short is passed over."""
    series: dict[str, list[tuple[float, float]]] = {}
    lines = (folder / LOG_FILE).read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break
        try:
            logged = json.loads(line)
            step = float(logged["step"])
            for measure, value in logged.items():
                if measure not in _ABOUT_THE_MACHINE and math.isfinite(value):
                    series.setdefault(measure, []).append((step, value))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptDataset(
                f"{folder / LOG_FILE}, line {number}: not a line of a training log ({error})"
            ) from error
    return [_curve(run, stage, measure, points) for measure, points in series.items()]


def _stage(folder: Path) -> str:
    kind = checkpoint_kind(find_checkpoint(folder))
    return STAGES[0 if kind in TOKENIZERS else 1 if kind in POLICIES else 2]


def _curve(run: str, stage: str, measure: str, points: list[tuple[float, float]]) -> Curve:
    every = math.ceil(len(points) / _POINTS)
    kept = [*points[:-1:every], points[-1]]
    return Curve(run, stage, measure, [step for step, _ in kept], [float(f"{value:.4g}") for _, value in kept])
