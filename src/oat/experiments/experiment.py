"""An experiment as it is run: which evaluations it needs, and the tables that it makes of them."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from oat.experiments.catalogue import EXPERIMENTS
from oat.experiments.study.study import EvaluationRun, Study
from oat.tables.files import load_tables
from oat.tables.table import Table


@dataclass(frozen=True)
class Experiment:
    """Hold the functions that make a table or figure of the paper."""

    name: str
    evaluations: Callable[[Study], list[EvaluationRun]]
    """Return the evaluations that must be run for it."""
    make_tables: Callable[[Study], list[Table]]
    """Return its tables, from the runs that there are, and draw its figures."""
    measure: Callable[[Study], None] | None
    """Measure what it needs beside runs, in a process with one thread, and keep it in the study's folder."""
    needs_models: bool

    def tables(self, study: Study) -> list[Table]:
        """Return the tables; where a study is published without its models, those that came with it."""
        # Published studies have no models, which are too large for git; their tables were made before publishing.
        kept = study.folder / "tables" / f"{self.name}.json"
        if self.needs_models and study.published and kept.exists():
            return load_tables(kept)
        return self.make_tables(study)


def load_experiment(name: str) -> Experiment:
    """Import the module of an experiment, and return what it can do."""
    entry = EXPERIMENTS[name]
    module = import_module(entry.module)
    measure = getattr(module, "measure", None)
    return Experiment(name, module.evaluations, module.tables, measure, entry.needs_models)
