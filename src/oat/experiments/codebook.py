"""table-codebook: OAT with other FSQ levels (Table IV)."""

from oat.experiments.paper import numbers as paper
from oat.experiments.study.methods import LEVEL_SETS, with_levels
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import read_rows, study_table
from oat.tables.table import Table

NAME = "table-codebook"
_CLAIMS = (
    ("a tiny codebook is too small", ("OAT [8,6,5]_8", "OAT_8")),
    ("a huge codebook is harder to model", ("OAT [7,5,5,5,5]_8", "OAT_8")),
)


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: OAT with every set of levels."""
    # One variant and OAT itself are enough to see that it runs.
    sets = LEVEL_SETS[1:3] if study.scale.name == "smoke" else LEVEL_SETS
    return study.ablations(with_levels(levels) for levels in sets)


def tables(study: Study) -> list[Table]:
    """Return the table of success by levels, with all eight tokens."""
    # OAT is evaluated from fewer tokens as well, for other tables.
    published = {with_levels(levels).label(8): success for levels, success in paper.CODEBOOK.items()}
    rows = [row for row in read_rows(study, evaluations(study)) if row.label.endswith("_8")]
    title = f"{NAME}: FSQ levels, success in % (the paper's numbers are LIBERO's)"
    return [study_table(study, title, rows, published, _CLAIMS)]
