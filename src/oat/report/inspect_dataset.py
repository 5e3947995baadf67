"""Run `oat inspect` on data sets: tables for the terminal, JSON for programs, one picture."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oat.data.episodes import Episodes, open_dataset
from oat.data.summary import DatasetSummary, DimensionSummary, summarize_dataset
from oat.errors import InvalidOption
from oat.io.pictures import new_figure, save_figure
from oat.tables.terminal import make_rich_table

_PICTURE_SUFFIXES = {".png", ".pdf", ".svg"}
_FILM_FRAMES = 8
_SHOWN_TASKS = 12
_BARS = "▁▂▃▄▅▆▇█"


def inspect_dataset(
    path: Path,
    *,
    subset: str | None = None,
    ranges: str | None = None,
    picture: Path | None = None,
    as_json: bool = False,
) -> None:
    """Print a summary of a data set, and draw its lengths, values, one episode and its frames."""
    picture = picture or Path(f"{path.resolve().name.split('.')[0]}-inspect.png")
    if picture.suffix not in _PICTURE_SUFFIXES:
        raise InvalidOption(f"the picture must end in {', '.join(sorted(_PICTURE_SUFFIXES))}, got {picture}")
    # NaNs are counted here and not refused, because this is how one finds out about them.
    episodes = open_dataset(path, subset, ranges, check=False)
    summary = summarize_dataset(episodes)
    if as_json:
        Console(soft_wrap=True).print(json.dumps(summary.to_json()), markup=False, highlight=False)
    else:
        print_summary(summary)
    draw_summary(summary, episodes, picture)
    # With --json the standard output is the JSON alone, for programs that read it.
    Console(stderr=as_json).print(f"picture: {picture}", highlight=False, markup=False, soft_wrap=True)


def print_summary(summary: DatasetSummary) -> None:
    """Print counts and tasks, then a row for each action dimension, then the observations."""
    console = Console()
    fps = f"{summary.fps:g}" if summary.fps else "not recorded"
    console.print(f"[bold]{escape(summary.source)}[/]", highlight=False, soft_wrap=True)
    console.print(f"{summary.episodes} episodes · {summary.frames} frames · fps {fps}", highlight=False)
    console.print(_task_table(summary))
    console.print(_dimension_table(summary.dimensions))
    if summary.observations:
        console.print(_observation_table(summary))
    for warning in _warnings(summary):
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)


def _task_table(summary: DatasetSummary) -> Table:
    table = make_rich_table("tasks", "task", "episodes", "frames", "shortest", "median", "longest", "lengths")
    for task, lengths in list(summary.lengths.items())[:_SHOWN_TASKS]:
        table.add_row(escape(task), *_length_cells(lengths), _bars(lengths))
    if len(summary.lengths) > _SHOWN_TASKS:
        table.add_row(f"… {len(summary.lengths) - _SHOWN_TASKS} more")
    if len(summary.lengths) > 1:
        every = tuple(length for lengths in summary.lengths.values() for length in lengths)
        table.add_row("[bold]all", *_length_cells(every), _bars(every))
    return table


def _length_cells(lengths: tuple[int, ...]) -> tuple[str, ...]:
    shortest, median, longest = np.quantile(lengths, (0, 0.5, 1))
    return (str(len(lengths)), str(sum(lengths)), f"{shortest:.0f}", f"{median:.0f}", f"{longest:.0f}")


def _bars(lengths: tuple[int, ...]) -> str:
    """Return the histogram of lengths as text, from the shortest to the longest."""
    counts, _ = np.histogram(lengths, 10)
    heights = np.ceil(counts / max(counts.max(), 1) * (len(_BARS) - 1)).astype(int)
    return "".join(_BARS[height] if count else " " for height, count in zip(heights, counts, strict=True))


def _dimension_table(dimensions: tuple[DimensionSummary, ...]) -> Table:
    table = make_rich_table("actions", "dim", "min", "1 %", "mean", "std", "99 %", "max", "saturated", "NaN/inf")
    for d in dimensions:
        numbers = [f"{value:.3g}" for value in (d.min, d.q01, d.mean, d.std, d.q99, d.max)]
        table.add_row(escape(d.name), *numbers, "constant" if d.constant else f"{d.saturated:.1%}", str(d.nonfinite))
    return table


def _observation_table(summary: DatasetSummary) -> Table:
    table = make_rich_table("observations", "key", "shape", "NaN/inf")
    for key, shape in summary.observations.items():
        nonfinite = summary.nonfinite_observations.get(key)
        table.add_row(escape(key), " × ".join(map(str, shape)), "–" if nonfinite is None else str(nonfinite))
    return table


def _warnings(summary: DatasetSummary) -> list[str]:
    """Return warnings about whatever would keep the data set from being trained on."""
    warnings = []
    if bad := sum(d.nonfinite for d in summary.dimensions):
        warnings.append(f"{bad} action values are NaN or infinite; such a set cannot be trained on")
    for key, bad in summary.nonfinite_observations.items():
        if bad:
            warnings.append(f"{bad} values of {escape(key)} are NaN or infinite; no policy can be trained on it")
    if empty := sum(length == 0 for lengths in summary.lengths.values() for length in lengths):
        warnings.append(f"{empty} episodes are empty")
    if not summary.dimensions:
        warnings.append("no frame has finite actions")
    return warnings


def draw_summary(summary: DatasetSummary, episodes: Episodes, picture: Path) -> None:
    """Draw lengths, value distributions, one episode's actions and, where there are cameras, its frames."""
    cameras = episodes.cameras
    figure = new_figure(12, 6.5 + 1.7 * len(cameras))
    grid = figure.add_gridspec(2 + len(cameras), 2, height_ratios=[1.15, 1, *([0.55] * len(cameras))])
    figure.suptitle(f"{summary.source}\n{summary.episodes} episodes · {summary.frames} frames", fontsize=10)
    shown = _typical_episode(episodes)
    _draw_lengths(figure.add_subplot(grid[0, 0]), summary)
    _draw_distributions(figure.add_subplot(grid[0, 1]), summary)
    _draw_actions(figure.add_subplot(grid[1, :]), summary, episodes, shown)
    for row, camera in enumerate(cameras):
        _draw_film(figure.add_subplot(grid[2 + row, :]), episodes, camera, shown)
    save_figure(figure, picture, dpi=120)


def _typical_episode(episodes: Episodes) -> int:
    """Return the number of the episode whose length is closest to the median."""
    return int(np.argmin(np.abs(episodes.lengths - np.median(episodes.lengths))))


def _draw_lengths(axes: Any, summary: DatasetSummary) -> None:
    groups = summary.lengths
    # There are not enough colours to tell more tasks apart.
    if len(groups) > _SHOWN_TASKS:
        groups = {f"{len(groups)} tasks": tuple(length for lengths in groups.values() for length in lengths)}
    axes.hist(list(groups.values()), bins=30, stacked=True, label=list(groups))
    axes.set(title="episode lengths", xlabel="steps", ylabel="episodes")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize=7)


def _draw_distributions(axes: Any, summary: DatasetSummary) -> None:
    """Draw each dimension's histogram in a row, between its own minimum and maximum, which are written beside it."""
    names = [d.name for d in summary.dimensions]
    for dim, d in enumerate(summary.dimensions):
        row = len(names) - 1 - dim
        counts = np.asarray(d.histogram, float)
        # The root keeps rare values visible beside saturated ones.
        heights = 0.85 * np.sqrt(counts / max(counts.max(), 1))
        edges = np.linspace(0, 1, len(counts) + 1)
        axes.stairs(row + heights, edges, baseline=row, fill=True, color=f"C{dim % 10}")
        axes.text(-0.015, row + 0.25, f"{d.min:.3g}", ha="right", fontsize=7, color="gray")
        axes.text(1.015, row + 0.25, f"{d.max:.3g}", ha="left", fontsize=7, color="gray")
    axes.set(title="action values, minimum to maximum (root scale)", xlim=(-0.12, 1.12), xticks=[])
    axes.set(ylim=(-0.15, max(len(names), 1)))
    axes.set_yticks([row + 0.3 for row in range(len(names))], names[::-1])


def _draw_actions(axes: Any, summary: DatasetSummary, episodes: Episodes, shown: int) -> None:
    actions = episodes.actions[episodes.frames(shown)]
    for dim, d in enumerate(summary.dimensions):
        axes.plot(actions[:, dim], linewidth=1.2, label=d.name, color=f"C{dim % 10}")
    axes.set(
        title=f"actions of episode {shown} ({episodes.task(shown)})", xlabel="step", xlim=(0, max(len(actions) - 1, 1))
    )
    axes.legend(fontsize=7, ncols=min(8, max(1, len(summary.dimensions))), loc="upper right")


def _draw_film(axes: Any, episodes: Episodes, camera: str, shown: int) -> None:
    frames = episodes.frames(shown)
    chosen = frames[np.linspace(0, len(frames) - 1, min(_FILM_FRAMES, len(frames))).astype(int)]
    axes.imshow(np.concatenate(list(episodes.observation(camera)[chosen]), axis=1))
    axes.set_title(f"{camera}, steps {', '.join(str(f - frames[0]) for f in chosen)}", fontsize=9)
    axes.set_axis_off()
