"""figure-coarse-to-fine: chunks reconstructed from 1, 2, 4 and 8 tokens, and executed in the simulator (Fig. 2)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float32

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import STATE, Episodes
from oat.data.transforms import transform_inputs
from oat.errors import SimulatorError
from oat.evaluation.claims import decide_rising
from oat.experiments.config import ExperimentName
from oat.experiments.paper import numbers as paper
from oat.experiments.pictures import new_figure, save_figure
from oat.experiments.reenactment import Execution, Stage, frame_of_motion, ghosted
from oat.experiments.study.held_out import find_tokenizer, held_out_chunks, held_out_episodes
from oat.experiments.study.methods import OAT
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import circumstances, training_steps
from oat.sims import find_simulator
from oat.sims.rendering import graphics_library
from oat.tables.interval import NOT_AVAILABLE
from oat.tables.table import Table
from oat.tokenizers import ActionTokenizer
from oat.tokenizers.measures import ChunkBatch, decode_prefixes, distortions, model_errors

NAME: ExperimentName = "figure-coarse-to-fine"
_TRUTH = 0  # in place of a number of tokens: the demonstrated actions
_COLUMNS = ("K", "MSE", "MSE, most motion", "hand off at the end, cm", "median", "largest", "paper's MSE, one chunk")
_MOST_SHOWN = 4
_MOMENTS = 5
_SHADES = {1: "#e7a9d0", 2: "#df65b0", 4: "#ce1256", 8: "#67001f", _TRUTH: "black"}


def evaluations(study: Study) -> list[EvaluationRun]:
    return [EvaluationRun(OAT, until="tokenizer")]


@dataclass(frozen=True)
class Refined:
    """A held-out chunk, reconstructed from more and more tokens."""

    episode: int
    task: str
    start: int
    actions: dict[int, Float32[np.ndarray, "steps dim"]]
    """By number of tokens."""
    errors: dict[int, float]
    """In model space."""
    executed: dict[int, Execution]
    """Nothing where the simulator could not be brought back."""

    def deviation(self, tokens: int) -> float:
        """How far from where the demonstrated actions lead, at the end, in cm."""
        return 100 * float(np.linalg.norm(self.executed[tokens].path[-1] - self.executed[_TRUTH].path[-1]))


def tables(study: Study) -> list[Table]:
    tokenizer, title = find_tokenizer(study, OAT), f"{NAME}: reconstructions from K tokens"
    if tokenizer is None:
        return [Table(title, _COLUMNS, (), (*circumstances(study), "not run: OAT's tokenizer"))]
    episodes = held_out_episodes(study, tokenizer.training_record)
    refined, remarks = _execute(study, episodes, [_refine(tokenizer, episodes, n) for n in range(len(episodes))])
    chunks = held_out_chunks(study, tokenizer)
    overall = distortions(tokenizer, chunks).mean(0).tolist()
    notes = (
        *circumstances(study),
        f"steps: {training_steps(study, EvaluationRun(OAT))}, of which only the tokenizer's matter here",
        f"MSE in model space: of {len(chunks)} held-out chunks, and of the one with the most motion in each of "
        f"{len(refined)} held-out episodes",
        *remarks,
        decide_rising(
            ("the error falls with K, in one chunk of each episode", [f"K={k}" for k in reversed(OAT.prefixes)]),
            {f"K={k}": [each.errors[k] for each in refined] for k in OAT.prefixes},
        ),
        _draw(study, refined, episodes.action_names),
    )
    return [Table(title, _COLUMNS, tuple(_row(k, overall[k - 1], refined) for k in OAT.prefixes), notes)]


def _row(tokens: int, overall: float, refined: Sequence[Refined]) -> tuple[str, ...]:
    errors = [each.errors[tokens] for each in refined]
    off = [each.deviation(tokens) for each in refined if each.executed]
    told = (
        (f"{np.mean(off):.2f}", f"{np.median(off):.2f}", f"{max(off):.2f}")
        if off
        else (NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE)
    )
    return (str(tokens), f"{overall:.4f}", f"{np.mean(errors):.4f}", *told, f"{paper.REFINEMENT[tokens]:.3f}")


def _refine(tokenizer: ActionTokenizer, episodes: Episodes, number: int) -> Refined:
    """The chunk of an episode in which the most happens, decoded from every number of tokens."""
    key = tokenizer.space.transform.state_key
    window = WindowConfig(tokenizer.action_horizon, 1, () if key is None else (key,))
    windows = Windows(episodes.select([number]), window)
    start = _most_motion(episodes.observation(STATE)[episodes.frames(number)], tokenizer.action_horizon)
    chunk = ChunkBatch(*transform_inputs(windows[np.array([start])], tokenizer.space.transform))
    decoded = decode_prefixes(tokenizer, chunk.encode(tokenizer), chunk)
    errors, steps = model_errors(tokenizer, decoded, chunk)[0].tolist(), int(chunk.valid.sum())
    actions = {k: decoded[0, k - 1, :steps].numpy() for k in OAT.prefixes} | {_TRUTH: chunk.actions[0, :steps].numpy()}
    return Refined(number, episodes.task(number), start, actions, {k: errors[k - 1] for k in OAT.prefixes}, {})


def _most_motion(states: np.ndarray, horizon: int) -> int:
    """The step after which the hand, whose position the state begins with, gets farthest within a chunk."""
    last = max(len(states) - horizon, 1)
    ends = states[np.minimum(np.arange(last) + horizon, len(states) - 1), :3]
    return int(np.linalg.norm(ends - states[:last, :3], axis=1).argmax())


def _execute(study: Study, episodes: Episodes, refined: Sequence[Refined]) -> tuple[list[Refined], list[str]]:
    """Every chunk in the simulator, where it can be brought back to the demonstration; and what is to be said of it."""
    kind = find_simulator(study.sim)
    if kind.demonstrator != "scripted" or kind.hand_position is None:
        return list(refined), [f"not executed: {study.sim} cannot be brought back to where its demonstrations began"]
    stage, failures, done = Stage(kind(), study.data), Counter[str](), list[Refined]()
    filmed = [] if graphics_library() is None else [each.episode for each in _shown(refined)]
    for each in refined:
        try:
            condition = stage.find_condition(episodes, each.episode)
        except SimulatorError as error:
            failures[str(error)] += 1
            done.append(each)
            continue
        before = episodes.actions[episodes.frames(each.episode)[: each.start]]
        moments = (
            np.linspace(0, len(each.actions[_TRUTH]), _MOMENTS if each.episode in filmed else 0).astype(int).tolist()
        )
        executed = {k: stage.execute(each.task, condition, before, a, moments) for k, a in each.actions.items()}
        done.append(replace(each, executed=executed))
    count = len(refined) - failures.total()
    remarks = [f"not executed: {number} of the episodes, {reason}" for reason, number in failures.items()]
    if count:
        reached = "in which the demonstrated actions led to the recorded observations again"
        remarks.append(f"executed: the chunks of {count} of the episodes, {reached}")
    return done, [*remarks, *(["no pictures: no graphics library"] if not filmed else [])]


def _shown(refined: Sequence[Refined]) -> list[Refined]:
    """The first of every task."""
    return list({each.task: each for each in reversed(refined)}.values())[::-1][:_MOST_SHOWN]


def _draw(study: Study, refined: Sequence[Refined], names: Sequence[str]) -> str:
    """For every chunk a row of ghosted pictures, where there are any, and a row of curves."""
    shown = _shown(refined)
    filmed = any(each.frames for one in shown for each in one.executed.values())
    rows = 2 if filmed else 1
    figure = new_figure(13, (4.6 if filmed else 2.2) * len(shown))
    grid = figure.add_gridspec(rows * len(shown), 5, height_ratios=([2.5, 1.5] if filmed else [1]) * len(shown))
    for number, each in enumerate(shown):
        panels = [[figure.add_subplot(grid[rows * number + row, column]) for column in range(5)] for row in range(rows)]
        if filmed:
            _draw_ghosts(panels[0], each)
        _draw_curves(panels[-1], each)
        if number == 0 and names:
            panels[-1][0].legend(panels[-1][0].lines[::2], names, fontsize=6, loc="lower left")
    return save_figure(study, NAME, figure)


def _draw_ghosts(panels: Sequence[Any], refined: Refined) -> None:
    everything = [frame for each in refined.executed.values() for frame in each.frames]
    for axes in panels:
        axes.set_axis_off()
    if not everything:
        return
    rows, columns = frame_of_motion(everything)
    for axes, (tokens, execution) in zip(panels, refined.executed.items(), strict=True):
        axes.imshow(ghosted(execution.frames)[rows, columns])
        off = "" if tokens == _TRUTH else f", hand {refined.deviation(tokens):.1f} cm off"
        axes.set_title(_name(tokens) + off, fontsize=9)


def _draw_curves(panels: Sequence[Any], refined: Refined) -> None:
    truth = refined.actions[_TRUTH]
    for axes, tokens in zip(panels, OAT.prefixes, strict=False):
        for dim in range(truth.shape[1]):
            axes.plot(truth[:, dim], color=f"C{dim % 10}", alpha=0.35)
            axes.plot(refined.actions[tokens][:, dim], color=f"C{dim % 10}", linestyle="--")
        axes.set_title(f"{_name(tokens)}, MSE {refined.errors[tokens]:.2g}", fontsize=9, color=_SHADES[tokens])
        axes.set_xlabel("step", fontsize=8)
    panels[0].set_ylabel(f"{refined.task}\naction (dashed: decoded)", fontsize=8)
    _draw_paths(panels[-1], refined)


def _draw_paths(axes: Any, refined: Refined) -> None:
    """The hand's way in the plane of its two longest directions."""
    if not refined.executed:
        axes.set_axis_off()
        return
    extent = np.ptp(refined.executed[_TRUTH].path, axis=0)
    first, second = sorted(np.argsort(extent)[1:])
    for tokens, execution in refined.executed.items():
        path = 100 * execution.path
        axes.plot(path[:, first], path[:, second], color=_SHADES[tokens], linewidth=2.5 if tokens == _TRUTH else 1.5)
    axes.set_title("the hand's path, cm", fontsize=9)
    axes.set(xlabel="xyz"[first], ylabel="xyz"[second])
    axes.set_aspect("equal", adjustable="datalim")


def _name(tokens: int) -> str:
    return "demonstrated" if tokens == _TRUTH else f"OAT_{tokens}"
