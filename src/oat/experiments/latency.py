"""table-latency: tokens per chunk and milliseconds per inference (Table II), for the shapes of all four benchmarks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np

from oat.evaluation.claims import decide_rising
from oat.experiments import timings
from oat.experiments.latency_records import LatencyRecord, read_timings
from oat.experiments.paper import numbers as paper
from oat.experiments.pictures import color_of, save_study_figure
from oat.experiments.study.methods import OAT
from oat.experiments.study.study import EvaluationRun, Study
from oat.io.pictures import new_figure
from oat.sims import find_simulator
from oat.sims.config import SimulatorName
from oat.tables.interval import NOT_AVAILABLE, Interval, format_range
from oat.tables.table import Table

NAME = "table-latency"
_ALIKE = 0.1  # the most by which costs may differ that are called the same
_COLUMNS = (
    *("policy", "tokens", "paper's", "ms", "95 %", "/ OAT_8's", "ONNX ms", "/ OAT_8's ONNX"),
    *("paper's ms, A100", "/ its OAT_8's"),
)


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return nothing: untrained models are as fast as trained ones."""
    return []


def measure(study: Study) -> None:
    """Time every method that has not been timed yet."""
    timings.measure(study)


def tables(study: Study) -> list[Table]:
    """Return a table for each shape that was timed, and draw all of them."""
    record = read_timings(study)
    if record is None:
        return [Table(f"{NAME}: tokens and milliseconds per chunk", _COLUMNS, (), ("not measured",))]
    picture = _draw(study, record)
    return [_table(sim, record, picture) for sim in record.shapes]


def _table(sim: SimulatorName, record: LatencyRecord, picture: str) -> Table:
    title = f"{NAME}: {sim}'s shape, H_a = {OAT.action_horizon}, D_a = {_action_dim(sim)}"
    rows = record.shapes[sim].timings
    published = paper.LATENCY[sim]
    # Machines differ, so both columns of times are repeated in units of the same method.
    best = rows["OAT_8"]
    its_best = published["OAT_8"][1]
    cells = []
    for label, row in rows.items():
        tokens, ms = published[label]
        ours = median_interval(row.ms)
        cells.append(
            (
                *(label, _count(row.tokens), _count(tokens)),
                *(f"{ours.estimate:.1f}", format_range(ours), _ratio(row.ms, best.ms)),
                *(f"{np.median(row.onnx_ms):.1f}" if row.onnx_ms else NOT_AVAILABLE, _ratio(row.onnx_ms, best.onnx_ms)),
                *(f"{ms:.1f}", f"{ms / its_best:.2f}"),
            )
        )
    return Table(title, _COLUMNS, tuple(cells), (*_notes(sim, record), picture))


def _count(tokens: float | None) -> str:
    return NOT_AVAILABLE if tokens is None else f"{tokens:.4g}"


def _ratio(times: Sequence[float], best: Sequence[float]) -> str:
    return f"{np.median(times) / np.median(best):.2f}" if times and best else NOT_AVAILABLE


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median between the order statistics that hold it with at least 95 % probability.

    How many of n values lie below the median is binomial(n, 1/2), whatever their distribution. Of few values, even the
    smallest and the largest hold it with less probability; then those are the interval.
    """
    ordered = np.sort(values)
    count = len(values)
    # The probability that at most k values lie below the median.
    below = accumulate(math.comb(count, k) / 2**count for k in range(count))
    # Each tail may have 2.5 %: the last k for which that holds is the place of the interval's lower end.
    low = max(sum(2 * probability <= 0.05 for probability in below) - 1, 0)
    return Interval(float(np.median(ordered)), float(ordered[low]), float(ordered[count - 1 - low]))


def _action_dim(sim: SimulatorName) -> int:
    """Return the number of dimensions D_a of an action in a benchmark."""
    return len(find_simulator(sim).action_names)


def _notes(sim: SimulatorName, record: LatencyRecord) -> Iterator[str]:
    """Yield what the columns mean, what was timed with what, and which of the paper's claims held."""
    shape = record.shapes[sim]
    rows = shape.timings
    yield (
        f"{record.preset}-size models with untrained weights, on which milliseconds do not depend; medians of "
        f"{len(rows['OAT_8'].ms)} chunks each, all methods taking turns on one observation, batch 1, one thread "
        f"({shape.machine}, torch {shape.torch}), commit {shape.commit}"
    )
    yield f"FAST: merges and mean tokens per chunk from {shape.source}; so many, and one to end, are forced here"
    yield "claims compare what two methods took in the same turn; 95 %: of the median"
    yield "observations are states; the paper's times include an image encoder"
    if not rows["OAT_8"].onnx_ms:
        yield "not run at this scale: the other shapes and ONNX Runtime"
    times = {label: row.ms for label, row in rows.items()}
    yield decide_rising(("fewer tokens are faster", ("OAT_1", "OAT_2", "OAT_4", "OAT_8")), times)
    for rival in ("DP", "FAST", "Bin"):
        yield decide_rising((f"OAT_8 is faster than {rival}", ("OAT_8", rival)), times)
    yield _decide_equal("OAT_8", "QueST", times)


def _decide_equal(one: str, other: str, times: Mapping[str, Sequence[float]]) -> str:
    """Decide whether the median ratio of times that were measured in the same turns is near 1."""
    ratio = median_interval([first / second for first, second in zip(times[one], times[other], strict=True)])
    low = 1 - _ALIKE
    high = 1 + _ALIKE
    if low <= ratio.low and ratio.high <= high:
        outcome = "held"
    else:
        outcome = "not held" if ratio.high < low or ratio.low > high else "undecided"
    measured = f"{one} / {other} = {ratio.estimate:.3f}, 95 %: {format_range(ratio, '.3f')}"
    return f"claim: {one} costs as much as {other}, within {_ALIKE:.0%}: {outcome} ({measured})"


def _draw(study: Study, record: LatencyRecord) -> str:
    """Draw the medians as bars, and the paper's beside them, scaled so that OAT_8 is the same."""
    figure = new_figure(3.2 * max(len(record.shapes), 2), 3.6)
    panels = figure.subplots(1, len(record.shapes), sharey=True, squeeze=False)[0]
    for axes, (sim, shape) in zip(panels, record.shapes.items(), strict=True):
        rows = shape.timings
        published = paper.LATENCY[sim]
        # The paper's card and this processor differ by a factor that means nothing here.
        unit = float(np.median(rows["OAT_8"].ms)) / published["OAT_8"][1]
        for place, (label, row) in enumerate(rows.items()):
            ours = float(np.median(row.ms))
            theirs = unit * published[label][1]
            axes.barh(place, ours, color=color_of(label))
            axes.plot(theirs, place, marker="|", color="black", markersize=14)
            axes.text(1.15 * max(ours, theirs), place, f"{ours:.3g}", va="center", fontsize=7)
        axes.set(title=f"{sim}, D_a = {_action_dim(sim)}", xscale="log", xlabel="ms per chunk")
        axes.set_yticks(range(len(rows)), list(rows))
        axes.margins(x=0.3)
    panels[0].invert_yaxis()
    title = f"median latency, {record.preset} size, one thread; |: the paper's (A100), scaled to the same OAT_8"
    figure.suptitle(title, fontsize=9)
    return save_study_figure(study, NAME, figure)
