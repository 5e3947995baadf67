"""figure-coarse-to-fine: chunks reconstructed from 1, 2, 4 and 8 tokens, and executed in the simulator (Fig. 2)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from oat.evaluation.claims import decide_rising
from oat.experiments.overlays import motion_square, overlay_frames
from oat.experiments.paper import numbers as paper
from oat.experiments.pictures import save_study_figure
from oat.experiments.refined_chunks import DEMONSTRATED, RefinedChunk, execute_chunks, refine_chunk
from oat.experiments.study.held_out import find_tokenizer, held_out_chunks, held_out_episodes
from oat.experiments.study.methods import OAT
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import circumstances, training_steps
from oat.io.pictures import new_figure
from oat.tables.interval import NOT_AVAILABLE
from oat.tables.table import Table
from oat.tokenizers.measures import distortions

NAME = "figure-coarse-to-fine"
_TITLE = f"{NAME}: reconstructions from K tokens"
_COLUMNS = ("K", "MSE", "MSE, most motion", "hand off at the end, cm", "median", "largest", "paper's MSE, one chunk")
_MOST_SHOWN = 4
_SHADES = {1: "#e7a9d0", 2: "#df65b0", 4: "#ce1256", 8: "#67001f", DEMONSTRATED: "black"}


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: OAT's tokenizer."""
    return [EvaluationRun(OAT, until="tokenizer")]


def tables(study: Study) -> list[Table]:
    """Reconstruct, execute and draw chunks of held-out episodes, and return the table of their errors."""
    tokenizer = find_tokenizer(study, OAT)
    if tokenizer is None:
        return [Table(_TITLE, _COLUMNS, (), (*circumstances(study), "not run: OAT's tokenizer"))]
    episodes = held_out_episodes(study, tokenizer.training_record)
    chunks = [refine_chunk(tokenizer, episodes, number) for number in range(len(episodes))]
    shown = [chunk.episode for chunk in _first_of_each_task(chunks)]
    refined, remarks = execute_chunks(study, episodes, chunks, filmed=shown)
    held_out = held_out_chunks(study, tokenizer)
    mean_errors = distortions(tokenizer, held_out).mean(0).tolist()
    notes = (
        *circumstances(study),
        f"steps: {training_steps(study, EvaluationRun(OAT))}, of which only the tokenizer's matter here",
        f"MSE in model space: of {len(held_out)} held-out chunks, and of the one with the most motion in each of "
        f"{len(refined)} held-out episodes",
        *remarks,
        # Paired within chunks: how hard chunks are varies more than how much another token helps.
        decide_rising(
            ("the error falls with K, in one chunk of each episode", [f"K={k}" for k in reversed(OAT.prefixes)]),
            {f"K={k}": [chunk.errors[k] for chunk in refined] for k in OAT.prefixes},
        ),
        _draw(study, refined, episodes.action_names),
    )
    return [Table(_TITLE, _COLUMNS, tuple(_row(k, mean_errors[k - 1], refined) for k in OAT.prefixes), notes)]


def _row(tokens: int, mean_error: float, refined: Sequence[RefinedChunk]) -> tuple[str, ...]:
    errors = [chunk.errors[tokens] for chunk in refined]
    deviations = [chunk.deviation(tokens) for chunk in refined if chunk.executed]
    executed = (NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE)
    if deviations:
        executed = (f"{np.mean(deviations):.2f}", f"{np.median(deviations):.2f}", f"{max(deviations):.2f}")
    published = f"{paper.REFINEMENT[tokens]:.3f}"
    return (str(tokens), f"{mean_error:.4f}", f"{np.mean(errors):.4f}", *executed, published)


def _first_of_each_task(chunks: Sequence[RefinedChunk]) -> list[RefinedChunk]:
    """Return the first chunk of every task, for as many tasks as there is room for."""
    firsts: dict[str, RefinedChunk] = {}
    for chunk in chunks:
        firsts.setdefault(chunk.task, chunk)
    return list(firsts.values())[:_MOST_SHOWN]


def _draw(study: Study, refined: Sequence[RefinedChunk], names: Sequence[str]) -> str:
    """Draw for every chunk a row of overlaid pictures, where there are any, and a row of curves."""
    shown = _first_of_each_task(refined)
    filmed = any(execution.frames for chunk in shown for execution in chunk.executed.values())
    rows = 2 if filmed else 1
    figure = new_figure(13, (4.6 if filmed else 2.2) * len(shown))
    grid = figure.add_gridspec(rows * len(shown), 5, height_ratios=([2.5, 1.5] if filmed else [1]) * len(shown))
    for number, chunk in enumerate(shown):
        panels = [[figure.add_subplot(grid[rows * number + row, column]) for column in range(5)] for row in range(rows)]
        if filmed:
            _draw_pictures(panels[0], chunk)
        _draw_curves(panels[-1], chunk)
        if number == 0 and names:
            # Every second line: each dimension is drawn twice, demonstrated and decoded.
            panels[-1][0].legend(panels[-1][0].lines[::2], names, fontsize=6, loc="lower left")
    return save_study_figure(study, NAME, figure)


def _draw_pictures(panels: Sequence[Any], chunk: RefinedChunk) -> None:
    """Draw the motion of every reconstruction in one picture each, all cropped alike."""
    all_frames = [frame for execution in chunk.executed.values() for frame in execution.frames]
    for axes in panels:
        axes.set_axis_off()
    if not all_frames:
        return
    rows, columns = motion_square(all_frames)  # one crop for all, or distances could not be compared by eye
    for axes, (tokens, execution) in zip(panels, chunk.executed.items(), strict=True):
        axes.imshow(overlay_frames(execution.frames)[rows, columns])
        deviation = "" if tokens == DEMONSTRATED else f", hand {chunk.deviation(tokens):.1f} cm off"
        axes.set_title(_name(tokens) + deviation, fontsize=9)


def _draw_curves(panels: Sequence[Any], chunk: RefinedChunk) -> None:
    truth = chunk.actions[DEMONSTRATED]
    for axes, tokens in zip(panels, OAT.prefixes, strict=False):
        for dim in range(truth.shape[1]):
            axes.plot(truth[:, dim], color=f"C{dim % 10}", alpha=0.35)
            axes.plot(chunk.actions[tokens][:, dim], color=f"C{dim % 10}", linestyle="--")
        axes.set_title(f"{_name(tokens)}, MSE {chunk.errors[tokens]:.2g}", fontsize=9, color=_SHADES[tokens])
        axes.set_xlabel("step", fontsize=8)
    panels[0].set_ylabel(f"{chunk.task}\naction (dashed: decoded)", fontsize=8)
    _draw_paths(panels[-1], chunk)


def _draw_paths(axes: Any, chunk: RefinedChunk) -> None:
    """Draw the hand's paths in the plane of the two directions in which it moves most."""
    if not chunk.executed:
        axes.set_axis_off()
        return
    extent = np.ptp(chunk.executed[DEMONSTRATED].path, axis=0)
    first, second = sorted(np.argsort(extent)[-2:])
    for tokens, execution in chunk.executed.items():
        path = 100 * execution.path
        width = 2.5 if tokens == DEMONSTRATED else 1.5
        axes.plot(path[:, first], path[:, second], color=_SHADES[tokens], linewidth=width)
    axes.set_title("the hand's path, cm", fontsize=9)
    axes.set(xlabel="xyz"[first], ylabel="xyz"[second])
    axes.set_aspect("equal", adjustable="datalim")


def _name(tokens: int) -> str:
    return "demonstrated" if tokens == DEMONSTRATED else f"OAT_{tokens}"
