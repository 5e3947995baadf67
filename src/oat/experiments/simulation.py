"""table-sim: success of every method in simulation (Table I), and task by task (the appendix's table)."""

from oat.experiments.paper import numbers as paper
from oat.experiments.paper.claims import SUCCESS
from oat.experiments.study.methods import BASELINES, COMPARED, UNORDERED
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import read_rows, study_table, task_table
from oat.tables.table import Table

NAME = "table-sim"


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: every method that the paper compares, the baselines and OAT×, with all their seeds."""
    return study.evaluations((*BASELINES, *COMPARED, UNORDERED))


def tables(study: Study) -> list[Table]:
    """Return the table over all tasks, and the one of every task."""
    rows = read_rows(study, evaluations(study))
    title = f"{NAME}: simulation benchmarking, success in %"
    pooled = study_table(study, title, rows, paper.AVERAGE.get(study.sim), SUCCESS)
    published = paper.PER_TASK.get(study.sim, {})
    return [pooled, task_table(study, f"{NAME}: task by task (the appendix's table)", rows, published)]
