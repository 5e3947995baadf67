"""figure-teaser: P.1–P.3 of every tokenizer, measured; inference as it goes on; success over all tasks (Fig. 1)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from oat.experiments.paper import numbers as paper
from oat.experiments.pictures import COLORS, color_of, save_study_figure, whiskers
from oat.experiments.properties import Properties, measure_properties
from oat.experiments.study.held_out import (
    find_policy,
    find_tokenizer,
    held_out_batches,
    held_out_chunks,
    held_out_windows,
)
from oat.experiments.study.methods import BIN, COMPARED, DP, FAST, OAT, QUEST
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import Row, circumstances, not_run, read_rows, study_table, training_steps
from oat.io.pictures import new_figure
from oat.policies import Policy
from oat.tables.interval import NOT_AVAILABLE, percent
from oat.tables.table import Table
from oat.training.policies import open_loop_errors

NAME = "figure-teaser"
_TOKENIZED = (BIN, FAST, QUEST, OAT)
_STREAMED = (DP, OAT)
_SHOWN_STEPS = (1, 2, 4, 8, 10)  # OAT ends after 8 tokens, DP after 10 denoising steps


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: four tokenizers and two policies; success is shown of what table-sim has run."""
    policies = [EvaluationRun(method, until="policy") for method in _STREAMED]
    return [*(EvaluationRun(method, until="tokenizer") for method in _TOKENIZED), *policies]


def tables(study: Study) -> list[Table]:
    """Measure and draw what there is, and return a table for each of the figure's three panels."""
    properties = {
        method.name: measure_properties(tokenizer, held_out_chunks(study, tokenizer))
        for method in _TOKENIZED
        if (tokenizer := find_tokenizer(study, method)) is not None
    }
    curves = {
        method.name: _stream(study, policy)
        for method in _STREAMED
        if (policy := find_policy(study, method)) is not None
    }
    rows = read_rows(study, study.evaluations(COMPARED))
    steps = ", ".join(f"{method.name} {training_steps(study, EvaluationRun(method))}" for method in COMPARED)
    notes = (*circumstances(study), f"steps: {steps}", _draw(study, properties, curves, rows))
    return [
        _properties_table(study, properties, notes),
        _curves_table(study, curves, notes),
        study_table(study, f"{NAME}: success in %", rows, paper.AVERAGE.get(study.sim)),
    ]


def _stream(study: Study, policy: Policy) -> Float[Tensor, "steps windows"]:
    """Measure the error of the chunk after every step of inference, on held-out observations."""
    windows = held_out_windows(study, policy)
    return open_loop_errors(policy, windows, held_out_batches(study, windows), policy.default_decoding)


def _properties_table(study: Study, properties: Mapping[str, Properties], notes: Sequence[str]) -> Table:
    columns = (
        *("tokenizer", "P.1 tokens", "numbers per token", "P.2 random sequences that decode, %", "95 %"),
        *("P.3 tokens after the first that lower the mean error", "chunks whose error falls with all, %", "MSE"),
    )
    cells = tuple(
        (
            *(name, f"{each.tokens:.4g}", f"{each.compression:.1f}", *percent(each.decodable)),
            *(
                (each.helpful_tokens, f"{100 * each.monotone:.0f}")
                if each.has_prefixes
                else ("no prefix decodes", NOT_AVAILABLE)
            ),
            f"{each.curve[-1]:.2g}",
        )
        for name, each in properties.items()
    )
    absent = [method.name for method in _TOKENIZED if method.name not in properties]
    reading = f"{study.scale.chunks} held-out chunks at most; random sequences are as long as those chunks' own"
    return Table(f"{NAME}: P.1–P.3, measured", columns, cells, (reading, *not_run(absent), *notes))


def _curves_table(study: Study, curves: Mapping[str, Float[Tensor, "steps windows"]], notes: Sequence[str]) -> Table:
    columns = ("policy", *(f"after {step}" for step in _SHOWN_STEPS))
    cells = tuple(
        (
            name,
            *(
                f"{float(errors[step - 1].mean()):.4f}" if step <= len(errors) else NOT_AVAILABLE
                for step in _SHOWN_STEPS
            ),
        )
        for name, errors in curves.items()
    )
    count = max((errors.shape[1] for errors in curves.values()), default=0)
    reading = f"DP: clean chunk that a denoising step heads for; OAT: prefix of tokens; {count} held-out observations"
    absent = [f"{method.name}'s policy" for method in _STREAMED if method.name not in curves]
    title = f"{NAME}: action error (MSE in model space, open loop) as inference goes on"
    return Table(title, columns, cells, (reading, *not_run(absent), *notes))


def _draw(
    study: Study,
    properties: Mapping[str, Properties],
    curves: Mapping[str, Float[Tensor, "steps windows"]],
    rows: Sequence[Row],
) -> str:
    """Draw the properties of tokenizers, inference as it goes on, and success, beside each other."""
    figure = new_figure(14, 4.2)
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.1, 1, 1])
    _draw_properties(left, properties)
    _draw_inference(middle, curves)
    _draw_success(right, rows, paper.AVERAGE.get(study.sim, {}))
    return save_study_figure(study, NAME, figure)


def _draw_inference(axes: Any, curves: Mapping[str, Float[Tensor, "steps windows"]]) -> None:
    for name, errors in curves.items():
        mean = errors.mean(1)
        standard_error = errors.std(1) / errors.shape[1] ** 0.5
        steps = range(1, len(errors) + 1)
        label = "DP: denoising steps" if name == "DP" else "OAT: tokens"
        axes.plot(steps, mean, marker="o", color=COLORS[name], label=label)
        axes.fill_between(
            steps, mean - standard_error, mean + standard_error, color=COLORS[name], alpha=0.2, linewidth=0
        )
    axes.set(title="inference as it goes on (band: standard error)", xlabel="steps", ylabel="action MSE, open loop")
    axes.set_ylim(0, None)
    if curves:
        axes.legend(fontsize=8)


def _draw_properties(axes: Any, properties: Mapping[str, Properties]) -> None:
    """Write the measured values in cells, the greener the better."""
    most = max((each.compression for each in properties.values()), default=2.0)
    texts = []
    grades = []
    for each in properties.values():
        short = f"{each.tokens:.4g} tokens\n{each.compression:.1f} numbers each"
        total = f"{100 * each.decodable.estimate:.3g} % of random\nsequences decode"
        ordered = (
            f"{each.helpful_tokens} further tokens\nlower the error" if each.has_prefixes else "no prefix\ndecodes"
        )
        texts.append((short, total, ordered))
        # Compression spans orders of magnitude, so its colour follows the logarithm.
        grades.append((np.log(each.compression) / np.log(most), each.decodable.estimate, each.helpful_share))
    if texts:
        axes.imshow(np.array(grades), cmap="RdYlGn", vmin=-0.6, vmax=1.6, aspect="auto")
    for row, cells in enumerate(texts):
        for column, text in enumerate(cells):
            axes.text(column, row, text, ha="center", va="center", fontsize=8)
    axes.set_xticks(range(3), ("P.1 short", "P.2 total", "P.3 ordered"))
    axes.set_yticks(range(len(properties)), list(properties))
    axes.tick_params(length=0)
    axes.set_title("what tokenizers do, measured on held-out chunks")


def _draw_success(axes: Any, rows: Sequence[Row], published: Mapping[str, tuple[float, float]]) -> None:
    for place, row in enumerate(rows):
        if row.overall is None:
            axes.text(place, 0.5, "not run", rotation=90, ha="center", fontsize=7)
        else:
            rate = row.overall.success
            axes.bar(place, 100 * rate.estimate, color=color_of(row.label), yerr=whiskers([rate]), capsize=3)
        if row.label in published:
            axes.plot(place, published[row.label][0], marker="_", color="black", markersize=18)
    axes.set_xticks(range(len(rows)), [row.label for row in rows], rotation=45)
    axes.set(title="success over all tasks (—: the paper's)", ylabel="%", ylim=(0, None))
