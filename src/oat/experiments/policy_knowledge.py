"""table-policy: what a policy gains by knowing the lattice of its tokens, one thing at a time, over one tokenizer."""

from oat.experiments.study.methods import BC, CLASSES, HARD_TARGETS, OAT, PAPER_POLICY, TOKENS_ALONE
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import read_rows, study_table
from oat.tables.table import Table

NAME = "table-policy"
_VARIANTS = (PAPER_POLICY, CLASSES, HARD_TARGETS, TOKENS_ALONE)
_CLAIMS = (
    ("the most likely tokens act better than sampled ones", ("OAT [the paper's policy]_8", "OAT [classes]_8")),
    ("near codes with near vectors act better than classes", ("OAT [classes]_8", "OAT [hard targets]_8")),
    ("soft targets act better than hard ones", ("OAT [hard targets]_8", "OAT [tokens alone]_8")),
    ("a remainder makes all tokens act better", ("OAT [tokens alone]_8", "OAT_8")),
    ("a remainder makes one token act better", ("OAT [tokens alone]_1", "OAT_1")),
    ("tokens do not lose to regression", ("BC", "OAT_8")),
)


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: BC, OAT, and OAT's tokenizer under policies that know less of it, or regress more."""
    return [*study.evaluations((BC, OAT)), *study.ablations(_VARIANTS)]


def tables(study: Study) -> list[Table]:
    """Return the table of what each part is worth."""
    rows = read_rows(study, evaluations(study))
    return [study_table(study, f"{NAME}: what knowing the tokens is worth, success in %", rows, claims=_CLAIMS)]
