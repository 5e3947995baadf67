"""The parts of the page: figures and tables under headings, and the values behind what moves."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from oat.data.provenance import read_demonstrator
from oat.evaluation.tables import summary_sheet
from oat.io.checkpoints import CONFIG_FILE, find_checkpoint
from oat.io.training_record import stored_record
from oat.report.curves import STAGES, Curve
from oat.report.figures import (
    Figure,
    codebook_figure,
    distortion_figures,
    log_axis,
    plot_text,
    success_figures,
)
from oat.report.loaded import Findings, method_of
from oat.report.reconstructions import Data, Reconstruction, group_by_chunks
from oat.report.rollouts import ClosedLoop
from oat.tables.table import Sheet

_SHOWN_PREFIXES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Section:
    """Figures and tables under one heading, with what must be known to read them."""

    title: str
    figures: Sequence[Figure] = ()
    sheets: Sequence[Sheet] = ()
    remarks: Sequence[str] = ()
    details: Sequence[Sheet] = ()
    """Tables to unfold."""


def success_sections(loops: Sequence[ClosedLoop], colours: Mapping[str, str]) -> list[Section]:
    """One for each way in which episodes were run, because only those that were run alike can be compared."""
    return [
        Section(
            f"{loop.protocol}, {loop.split} conditions",
            success_figures(f"success-{number}", loop, colours),
            [_success_sheet(loop)],
            loop.remarks(),
            [replace(summary_sheet(loop.summaries), title="Every policy on every task")],
        )
        for number, loop in enumerate(loops)
    ]


def _success_sheet(loop: ClosedLoop) -> Sheet:
    """A row for each policy, its success on each task side by side."""
    rates = {(row.policy, row.task): f"{100 * row.success.estimate:.1f}" for row in loop.summaries}
    rows = []
    for row in loop.overall:
        tasks = (rates.get((row.policy, task), "—") for task in loop.tasks)
        overall = (f"{100 * row.success.estimate:.1f}", f"{100 * row.success.low:.0f} … {100 * row.success.high:.0f}")
        costs = (f"{row.tokens_per_chunk:.3g}", f"{row.inference_ms:.1f}")
        rows.append((row.policy, *tasks, *overall, f"{row.episodes:,}", *costs))
    columns = ("policy", *loop.tasks, "overall", "95 %", "episodes", "tokens", "ms")
    return Sheet("Success, %", columns, tuple(rows), ("overall: every task counts alike", "tokens, ms: per chunk"))


def distortion_sections(tokenizers: Sequence[Reconstruction], colours: Mapping[str, str]) -> list[Section]:
    """One for each kind of chunk."""
    sections = []
    for number, group in enumerate(group_by_chunks(tokenizers)):
        space, name = group[0].space, f"distortion-{number}"
        transformed = "" if space.transform.kind == "identity" else f", {space.transform.kind}"
        title = f"{space.action_horizon} × {space.action_dim} actions of {group[0].data}{transformed}"
        sheet, remarks = _distortion_sheet(title, group), [each.remark for each in group if each.remark]
        sections.append(Section(title, distortion_figures(name, group, colours), [sheet], remarks))
    return sections


def _distortion_sheet(title: str, group: Sequence[Reconstruction]) -> Sheet:
    shown = [k for k in _SHOWN_PREFIXES if any(each.ordered and k in each.evaluation.prefixes for each in group)]
    rows = []
    for each in group:
        found = each.evaluation
        errors = dict(zip(found.prefixes, found.mse, strict=True)) if each.ordered else {}
        sizes = (f"{found.chunks:,}", f"{found.tokens:.4g}", f"{found.bits:,.0f}")
        prefixes = (f"{errors[k]:.2g}" if k in errors else "—" for k in shown)
        never_worse = f"{found.monotone:.0%}" if each.ordered else "—"
        speeds = (f"{found.encode_rate:,.0f}", f"{found.decode_rate:,.0f}")
        rows.append((each.name, *sizes, *prefixes, f"{found.mse[-1]:.2g}", never_worse, *speeds))
    return Sheet(
        f"Mean squared error for {title}",
        (
            *("tokenizer", "chunks", "tokens", "bits", *(f"K={k}" for k in shown)),
            *("all tokens", "never worse", "enc/s", "dec/s"),
        ),
        tuple(rows),
        (
            "each on chunks of episodes that were held out from its own fitting, scaled to its model space",
            "never worse: chunks whose error falls, or stays, with every single token",
            "enc/s, dec/s: chunks per second while this page was made",
        ),
    )


def codebook_sections(tokenizers: Sequence[Reconstruction]) -> list[Section]:
    """Of the tokenizers whose positions mean something: those with a fixed, small number of tokens."""
    positional = [each for each in tokenizers if each.evaluation.perplexity]
    return [Section("", [codebook_figure("perplexity", positional)])] if positional else []


def training_measures(
    curves: Sequence[Curve], colours: Mapping[str, str]
) -> dict[str, dict[str, tuple[list[dict[str, Any]], dict[str, Any]]]]:
    """For each stage its measures, the loss first, each as traces and a layout."""
    stages: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for curve in sorted(curves, key=lambda curve: (STAGES.index(curve.stage), _order(curve.measure))):
        drawn = stages.setdefault(curve.stage, {}).setdefault(curve.measure, [])
        method = plot_text(method_of(curve.run))
        trace = {
            **{"type": "scatter", "mode": "lines+markers" if len(curve.steps) < 30 else "lines"},
            **{"name": method, "legendgroup": method, "showlegend": all(each["name"] != method for each in drawn)},
            **{"x": curve.steps, "y": curve.values},
            **{"hovertemplate": f"{plot_text(curve.run)}, step %{{x}}: %{{y:.3g}}<extra></extra>"},
            **{"line": {"color": colours[method_of(curve.run)], "width": 2}, "marker": {"size": 5}},
        }
        drawn.append(trace)
    return {
        stage: {measure: (data, _training_layout(measure, data)) for measure, data in measures.items()}
        for stage, measures in stages.items()
    }


def _order(measure: str) -> tuple[bool, bool, int, str]:
    """The loss, other measures of training, then those of validation; mse_2 before mse_10."""
    stem, _, last = measure.rpartition("_")
    number = int(last) if last.isdigit() else 0
    return measure != "loss", measure.startswith("validation/"), number, stem or measure


def _training_layout(measure: str, traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = [value for trace in traces for value in trace["y"]]
    axis = log_axis(measure, values) if min(values) > 0 else {"title": {"text": measure}}
    return {"xaxis": {"title": {"text": "step"}, "rangemode": "tozero"}, "yaxis": axis}


def explored(each: Reconstruction, colours: Mapping[str, str]) -> dict[str, Any]:
    """A tokenizer as the slider needs it."""
    return {
        "name": each.name,
        "colour": colours[each.method],
        "ordered": each.ordered,
        "bits": math.log2(each.vocab_size),
        "dimensions": [plot_text(name) for name in each.dimensions],
        "motions": each.motions,
        "chunks": [asdict(example) for example in each.examples],
    }


def origins(found: Findings, datasets: Sequence[Data]) -> Section:
    """Where everything comes from: data sets, and the commands that made the checkpoints."""
    sheets = []
    if datasets:
        sheets.append(_dataset_sheet(datasets))
    if found.tokenizers or found.policies:
        sheets.append(_checkpoint_sheet(found))
    return Section("", sheets=sheets)


def _dataset_sheet(datasets: Sequence[Data]) -> Sheet:
    rows = []
    for data in datasets:
        episodes, demonstrator = data.episodes, read_demonstrator(data.path)
        size = (f"{len(episodes):,}", f"{episodes.num_frames:,}", str(episodes.action_dim))
        rate = f"{episodes.fps:g}" if episodes.fps else "—"
        rows.append((data.name, *size, rate, demonstrator, ", ".join(episodes.tasks)))
    columns = ("data set", "episodes", "steps", "action dim.", "steps/s", "demonstrator", "tasks")
    return Sheet("Demonstrations", columns, tuple(rows))


def _checkpoint_sheet(found: Findings) -> Sheet:
    rows = []
    for path, name in found.names([*found.tokenizers, *found.policies]).items():
        config = json.loads((find_checkpoint(path) / CONFIG_FILE).read_text("utf-8"))
        record = stored_record(config)
        known = (record.seed, record.step, record.command)
        rows.append((name, str(config["kind"]), *("—" if value is None else str(value) for value in known)))
    return Sheet("Checkpoints", ("name", "kind", "seed", "steps", "made by"), tuple(rows))
