"""figure-modes: who can choose between two ways round an obstacle? (our own; the paper has no such probe)

Half of the demonstrations go left and half go right, from the same starts. A policy that predicts their mean runs into
the obstacle, if demonstrations are too many to learn by heart; one that models a distribution of chunks chooses.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from oat.evaluation.claims import Claim
from oat.experiments.paths import HandPath, measure_paths, read_demonstrated_paths, read_paths
from oat.experiments.pictures import color_of, save_study_figure
from oat.experiments.study.methods import BASELINES, COMPARED, UNORDERED
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import Row, read_rows, study_table
from oat.io.extras import import_extra
from oat.io.pictures import new_figure
from oat.sims.detour import GOAL, GOAL_RADIUS, RADIUS, Way, way_of
from oat.tables.interval import NOT_AVAILABLE
from oat.tables.table import Table

NAME = "figure-modes"
_WAYS: dict[Way, str] = {"left": "left, %", "right": "right, %", "hit": "obstacle, %", "neither": "neither, %"}
_CHOOSE = ("DP", "Bin", "FAST", "QueST", "OAT×_8", "OAT_8")
_CLAIMS: tuple[Claim, ...] = tuple((f"{label} acts better than BC", ("BC", label)) for label in _CHOOSE)
_SHOWN = ("BC", "DP", "Bin", "FAST", "QueST", "OAT×_8", "OAT_1", "OAT_8")
_PANELS_PER_ROW = 4
_COLORS = {"DP": "black"}  # its usual grey is the demonstrations' here


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: every method, those with long sequences included, because all have the same minutes."""
    return study.evaluations((*BASELINES, *COMPARED[:-1], UNORDERED, COMPARED[-1]))


def measure(study: Study) -> None:
    """Keep the paths of all episodes."""
    measure_paths(study, evaluations(study))


def tables(study: Study) -> list[Table]:
    """Draw the paths, and return the table of success and of the sides on which episodes passed the obstacle."""
    rows = read_rows(study, evaluations(study))
    paths = {name: path for each in evaluations(study) for name, path in read_paths(study, each).items()}
    found = {row.label: _paths_of(row, paths) for row in rows}
    demonstrated = read_demonstrated_paths(study)
    table = study_table(study, f"{NAME}: two ways round an obstacle, success in %", rows, claims=_CLAIMS)
    cells = tuple((*row, *_shares(found[row[0]])) for row in table.rows)
    notes = (
        *table.notes,
        "left, right: the side on which an episode passed the obstacle; obstacle: it ended there; neither: before it",
        *_about(rows, found, demonstrated),
        _draw(study, [row for row in rows if row.label in _SHOWN], found, demonstrated),
    )
    return [replace(table, columns=(*table.columns, *_WAYS.values()), rows=cells, notes=notes)]


def _paths_of(row: Row, paths: Mapping[str, HandPath]) -> list[HandPath]:
    """Return the paths of a row's episodes, as far as they were measured."""
    names = (record.key.file_name for record in row.records)
    return [paths[name] for name in names if name in paths]


def _count(paths: Sequence[HandPath]) -> Counter[Way]:
    return Counter(way_of(path) for path in paths)


def _shares(paths: Sequence[HandPath]) -> list[str]:
    ways = _count(paths)
    return [f"{100 * ways[way] / len(paths):.0f}" if paths else NOT_AVAILABLE for way in _WAYS]


def _about(rows: Sequence[Row], found: Mapping[str, Sequence[HandPath]], demonstrated: Sequence[HandPath]) -> list[str]:
    """Return notes on the demonstrations' sides, and on what has no paths."""
    absent = [row.label for row in rows if len(found[row.label]) < len(row.records)]
    ways = _count(demonstrated)
    told = f"demonstrations: {ways['left']} pass on the left, {ways['right']} on the right"
    return [*([told] if demonstrated else []), *([f"not measured: paths of {', '.join(absent)}"] if absent else [])]


def _draw(
    study: Study, rows: Sequence[Row], found: Mapping[str, Sequence[HandPath]], demonstrated: Sequence[HandPath]
) -> str:
    """Draw a panel for each method: the demonstrations in grey, and the paths of its first training in colour."""
    lines = -(-len(rows) // _PANELS_PER_ROW)
    figure = new_figure(2.5 * _PANELS_PER_ROW, 2.5 * lines + 0.4)
    panels = figure.subplots(lines, _PANELS_PER_ROW, squeeze=False).ravel()
    for axes in panels:
        axes.set_axis_off()
    for axes, row in zip(panels, rows, strict=False):
        _draw_scene(axes, demonstrated)
        _draw_paths(axes, found[row.label][: study.episodes], _COLORS.get(row.label, color_of(row.label)))
        rate = "not run" if row.overall is None else f"{100 * row.overall.success.estimate:.0f} % arrive"
        axes.set_title(f"{row.label}: {rate}", fontsize=10)
    figure.suptitle("Two ways from below round an obstacle; grey: demonstrations, ×: the obstacle was hit", fontsize=10)
    return save_study_figure(study, NAME, figure)


def _draw_scene(axes: Any, demonstrated: Sequence[HandPath]) -> None:
    circle = import_extra("matplotlib.patches", "report").Circle
    axes.add_patch(circle((0, 0), RADIUS, color="0.6"))
    axes.add_patch(circle(tuple(GOAL), GOAL_RADIUS, color="tab:green", alpha=0.35))
    for path in demonstrated:
        axes.plot(*path.T, color="0.85", linewidth=0.8, zorder=0)
    axes.set(xlim=(-1, 1), ylim=(-0.75, 0.85), aspect="equal")


def _draw_paths(axes: Any, paths: Sequence[HandPath], color: str) -> None:
    for path in paths:
        axes.plot(*path.T, color=color, linewidth=0.8, alpha=0.6)
        if way_of(path) == "hit":
            axes.plot(*path[-1], color=color, marker="x", markersize=4)
