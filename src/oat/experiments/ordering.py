"""table-ordering: OAT against OAT×, which is trained without nested dropout (Table III)."""

from dataclasses import replace

from oat.experiments.paper import numbers as paper
from oat.experiments.paper.claims import BETTER_THAN_REGRESSION, MONOTONE, ORDERED
from oat.experiments.study.methods import (
    BC,
    FLOW,
    FULL_REGISTERS,
    OAT,
    PAPER_OBJECTIVE,
    QUEST,
    RVQ,
    UNORDERED,
    UNORDERED_FULL_REGISTERS,
)
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import read_rows, study_table
from oat.tables.table import Table

NAME = "table-ordering"
_CLAIMS = (
    ORDERED,
    ("without nested dropout, four tokens of OAT are still better", ("OAT×_8", "OAT_4")),
    ("causal registers matter beside nested dropout", ("OAT [full registers]_8", "OAT_8")),
    ("causal registers matter without nested dropout", ("OAT× [full registers]_8", "OAT×_8")),
    ("order by training acts better than order by residuals", ("RVQ_8", "OAT_8")),
    ("our objective acts better than the paper's", ("OAT [the paper's objective]_8", "OAT_8")),
    MONOTONE,
)
_HALF = 8
"""Actions executed in the second table, half of the paper's."""
_HALF_CLAIMS = (
    ORDERED,
    ("OAT acts better than QueST", ("QueST", "OAT_8")),
    BETTER_THAN_REGRESSION,
    MONOTONE,
)


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: QueST, OAT, OAT× and RVQ, variants of OAT; with half the actions executed BC, too."""
    return [*_whole(study), *_half(study)]


def tables(study: Study) -> list[Table]:
    """Return the tables of what ordering is worth: with the paper's number of executed actions, and with half of it."""
    title = f"{NAME}: what ordering is worth, success in %"
    published = paper.AVERAGE.get(study.sim)
    return [
        study_table(study, title, read_rows(study, _whole(study)), published, _CLAIMS),
        study_table(study, f"{title}, {_HALF} actions executed", read_rows(study, _half(study)), None, _HALF_CLAIMS),
    ]


def _whole(study: Study) -> list[EvaluationRun]:
    variants = [PAPER_OBJECTIVE, FLOW, FULL_REGISTERS, UNORDERED_FULL_REGISTERS]
    if study.scale.name == "smoke":
        variants = [FLOW]
    return [*study.evaluations((QUEST, OAT, UNORDERED, RVQ)), *study.ablations(variants)]


def _half(study: Study) -> list[EvaluationRun]:
    return [replace(run, execute=_HALF) for run in study.evaluations((BC, QUEST, OAT, UNORDERED))]
