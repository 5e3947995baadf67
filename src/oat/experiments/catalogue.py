"""The experiments by name: which evaluations each needs, and the tables that it makes of them."""

from collections.abc import Callable
from dataclasses import dataclass

from oat.experiments import (
    coarse_to_fine,
    fast_failure,
    horizons,
    latency,
    modelability,
    real,
    teaser,
    timings,
)
from oat.experiments.config import ExperimentName
from oat.experiments.paper import numbers
from oat.experiments.paper.claims import BETTER_THAN_RIVALS, MONOTONE
from oat.experiments.study.methods import (
    COMPARED,
    FLOW,
    FULL_REGISTERS,
    LEVEL_SETS,
    OAT,
    QUEST,
    UNORDERED,
    UNORDERED_FULL_REGISTERS,
    with_levels,
)
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import read_rows, study_table, task_table
from oat.tables.files import load_tables
from oat.tables.table import Table


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    about: str
    evaluations: Callable[[Study], list[EvaluationRun]]
    """What it needs run."""
    tables: Callable[[Study], list[Table]]
    """Its tables, of what there is; figures are drawn on the way."""
    measure: Callable[[Study], None] | None = None
    """What it takes beside runs, in a process with one thread; the study keeps it."""


def _sim_evaluations(study: Study) -> list[EvaluationRun]:
    return study.evaluations(COMPARED)


def _sim_tables(study: Study) -> list[Table]:
    rows, claims = read_rows(study, _sim_evaluations(study)), [*BETTER_THAN_RIVALS, MONOTONE]
    title = "table-sim: simulation benchmarking, success in %"
    pooled = study_table(study, title, rows, numbers.AVERAGE.get(study.sim), claims)
    tasks = numbers.PER_TASK.get(study.sim, {})
    return [pooled, task_table(study, "table-sim: task by task (the appendix's table)", rows, tasks)]


def _ordering_evaluations(study: Study) -> list[EvaluationRun]:
    variants = (FLOW,) if study.scale.name == "smoke" else (FLOW, FULL_REGISTERS, UNORDERED_FULL_REGISTERS)
    return [*study.evaluations((QUEST, OAT, UNORDERED)), *study.ablations(variants)]


def _ordering_tables(study: Study) -> list[Table]:
    claims = [
        ("OAT without ordering acts worse", ("OAT×_8", "OAT_8")),
        ("without nested dropout, four tokens of OAT are still better", ("OAT×_8", "OAT_4")),
        ("causal registers matter beside nested dropout", ("OAT [full registers]_8", "OAT_8")),
        ("causal registers matter without nested dropout", ("OAT× [full registers]_8", "OAT×_8")),
        MONOTONE,
    ]
    rows = read_rows(study, _ordering_evaluations(study))
    title = "table-ordering: what ordering is worth, success in %"
    return [study_table(study, title, rows, numbers.AVERAGE.get(study.sim), claims)]


def _codebook_evaluations(study: Study) -> list[EvaluationRun]:
    sets = LEVEL_SETS[1:3] if study.scale.name == "smoke" else LEVEL_SETS
    return study.ablations(with_levels(levels) for levels in sets)


def _codebook_tables(study: Study) -> list[Table]:
    published = {with_levels(levels).label(8): success for levels, success in numbers.CODEBOOK.items()}
    evaluations = _codebook_evaluations(study)
    rows = [row for row in read_rows(study, evaluations) if row.label.endswith("_8")]
    first, best, last = "OAT [8,6,5]_8", "OAT_8", "OAT [7,5,5,5,5]_8"
    claims = [
        ("a tiny codebook is too small", (first, best)),
        ("a huge codebook is harder to model", (last, best)),
    ]
    title = "table-codebook: FSQ levels, success in % (the paper's numbers are LIBERO's)"
    return [study_table(study, title, rows, published, claims)]


def _drawn(name: ExperimentName, draw: Callable[[Study], list[Table]]) -> Callable[[Study], list[Table]]:
    """A figure looks at models; where a study is published without them, the tables that came with it stand."""

    def tables(study: Study) -> list[Table]:
        kept = study.folder / "tables" / f"{name}.json"
        return load_tables(kept) if study.published and kept.exists() else draw(study)

    return tables


EXPERIMENTS: dict[ExperimentName, Experiment] = {
    "table-sim": Experiment("simulation benchmarking (Table I)", _sim_evaluations, _sim_tables),
    "table-latency": Experiment(
        "tokens and milliseconds per chunk (Table II)", lambda study: [], latency.tables, timings.measure
    ),
    "table-ordering": Experiment("OAT against OAT× (Table III)", _ordering_evaluations, _ordering_tables),
    "table-horizons": Experiment("action and token horizons (Fig. 5)", horizons.evaluations, horizons.tables),
    "table-codebook": Experiment("FSQ levels (Table IV)", _codebook_evaluations, _codebook_tables),
    "table-real": Experiment("trials of a robot (Table V)", real.evaluations, real.tables, real.measure),
    "figure-teaser": Experiment(
        "properties, inference and success (Fig. 1)", teaser.evaluations, _drawn(teaser.NAME, teaser.tables)
    ),
    "figure-coarse-to-fine": Experiment(
        "reconstructions and their execution (Fig. 2)",
        coarse_to_fine.evaluations,
        _drawn(coarse_to_fine.NAME, coarse_to_fine.tables),
    ),
    "figure-modelability": Experiment(
        "what predicts success (sections IV-C, V-B)",
        modelability.evaluations,
        _drawn(modelability.NAME, modelability.tables),
    ),
    "figure-fast-failure": Experiment(
        "sequences that do not decode (appendix B)",
        fast_failure.evaluations,
        _drawn(fast_failure.NAME, fast_failure.tables),
    ),
}
