"""Records of table-latency on disk: milliseconds per chunk of every method."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oat.experiments.study.study import Study
from oat.io.atomic import staged_file
from oat.sims.config import SimulatorName

TIMINGS_FILE = "latency.json"


@dataclass(frozen=True)
class Timing:
    """Hold how long a method takes for a chunk, at one number of tokens."""

    tokens: float | None
    """Tokens per chunk; None for diffusion, which has none."""
    ms: tuple[float, ...]
    """Milliseconds of each turn; methods that were timed in the same turn can be compared."""
    onnx_ms: tuple[float, ...]
    """Milliseconds of each turn in ONNX Runtime; empty where the method was not exported."""


@dataclass(frozen=True)
class ShapeTimings:
    """Hold the timings of all methods for the shape of one benchmark, and what they were timed with."""

    source: str
    """In words, where the chunks that FAST was fitted to are from."""
    commit: str
    machine: str
    torch: str
    timings: dict[str, Timing]
    """Timings by the label of a table's row, such as OAT_8."""


@dataclass(frozen=True)
class LatencyRecord:
    """Hold everything that was timed for one study."""

    preset: str
    """The size of the models."""
    shapes: dict[SimulatorName, ShapeTimings]


def read_timings(study: Study) -> LatencyRecord | None:
    """Read what was timed for a study; return None where nothing was."""
    file = study.folder / TIMINGS_FILE
    if not file.exists():
        return None
    record = json.loads(file.read_text("utf-8"))
    preset = record.pop("preset")
    shapes = record.pop("shapes")
    # Older files say once, for all shapes, what they were timed with: it is what is left of the record here.
    return LatencyRecord(preset, {sim: _read_shape(**record | shape) for sim, shape in shapes.items()})


def write_timings(study: Study, record: LatencyRecord) -> None:
    """Write what was timed into the study's folder, whole or not at all."""
    with staged_file(study.folder / TIMINGS_FILE) as staging:
        staging.write_text(json.dumps(asdict(record), indent=1), "utf-8")


def _read_shape(timings: Mapping[str, Mapping[str, Any]], **timed_with: str) -> ShapeTimings:
    # JSON has lists where the dataclass has tuples.
    return ShapeTimings(
        **timed_with,
        timings={
            label: Timing(timing["tokens"], tuple(timing["ms"]), tuple(timing["onnx_ms"]))
            for label, timing in timings.items()
        },
    )
