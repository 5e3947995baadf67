"""table-ordering: OAT against OAT×, which is trained without nested dropout (Table III)."""

from oat.experiments.paper import numbers as paper
from oat.experiments.paper.claims import MONOTONE
from oat.experiments.study.methods import FLOW, FULL_REGISTERS, OAT, QUEST, RVQ, UNORDERED, UNORDERED_FULL_REGISTERS
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import read_rows, study_table
from oat.tables.table import Table

NAME = "table-ordering"
_CLAIMS = (
    ("OAT without ordering acts worse", ("OAT×_8", "OAT_8")),
    ("without nested dropout, four tokens of OAT are still better", ("OAT×_8", "OAT_4")),
    ("causal registers matter beside nested dropout", ("OAT [full registers]_8", "OAT_8")),
    ("causal registers matter without nested dropout", ("OAT× [full registers]_8", "OAT×_8")),
    ("order by training acts better than order by residuals", ("RVQ_8", "OAT_8")),
    MONOTONE,
)


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: QueST, OAT, OAT× and RVQ, and variants of the registers and the decoder."""
    variants = (FLOW,) if study.scale.name == "smoke" else (FLOW, FULL_REGISTERS, UNORDERED_FULL_REGISTERS)
    return [*study.evaluations((QUEST, OAT, UNORDERED, RVQ)), *study.ablations(variants)]


def tables(study: Study) -> list[Table]:
    """Return the table of what ordering is worth."""
    rows = read_rows(study, evaluations(study))
    title = f"{NAME}: what ordering is worth, success in %"
    return [study_table(study, title, rows, paper.AVERAGE.get(study.sim), _CLAIMS)]
