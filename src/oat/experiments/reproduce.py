"""Run `oat reproduce`: the runs that are missing, then the tables."""

from collections.abc import Sequence

from rich.console import Console

from oat.data.episodes import open_dataset
from oat.errors import unknown_name
from oat.experiments.config import ReproduceConfig
from oat.experiments.experiment import load_experiment
from oat.experiments.study.budget import StepBudget
from oat.experiments.study.methods import Method
from oat.experiments.study.publish import publish
from oat.experiments.study.scales import SCALES
from oat.experiments.study.scheduler import Submit, open_workers, perform_all
from oat.experiments.study.starts import with_starts
from oat.experiments.study.study import EvaluationRun, Study
from oat.io.locks import exclusive
from oat.sims import find_simulator
from oat.sims.rendering import INSTALL_COMMAND, graphics_library
from oat.tables.files import write_tables
from oat.tables.terminal import to_terminal


def reproduce(config: ReproduceConfig) -> None:
    """Run what is not there yet, write tables/NAME.json, .md and .tex, figures/NAME.png, and show the tables."""
    folder = config.out.resolve() / config.scale / config.study_name
    data = None if config.data is None else config.data.resolve()
    films = config.films and graphics_library() is not None
    study = Study(
        SCALES[config.scale],
        config.sim,
        folder,
        data,
        config.seeds,
        films,
        config.minutes,
        config.observe,
        config.decoding,
    )
    if data is not None and not config.only_tables:
        demonstrations = open_dataset(data)
        for key in config.observe:
            demonstrations.observation(key)  # what nobody recorded is refused before hours of fitting
    folder.mkdir(parents=True, exist_ok=True)
    if not config.only_tables:
        if study.scale.videos and config.films and not study.films:
            _tell(f"no episodes are filmed: that needs EGL or OSMesa ({INSTALL_COMMAND})")
        with exclusive(folder, f"reproducing into {folder}"), open_workers(config) as submit:
            _refuse_unknown(config.methods, study, config.names)
            for name in config.names:
                _run(study, name, config, submit)
    for name in config.names:
        tables = load_experiment(name).tables(study)
        write_tables(folder / "tables" / (name if config.decoding == "usual" else f"{name}-{config.decoding}"), tables)
        for table in tables:
            Console().print(to_terminal(table))
    if config.publish is not None:
        publish(folder, config.publish / config.scale / config.study_name)


def _refuse_unknown(methods: Sequence[str], study: Study, names: Sequence[str]) -> None:
    """Raise `UnknownName` for a method that none of these experiments has."""
    known = {each.method.slug for name in names for each in load_experiment(name).evaluations(study)}
    for method in methods:
        if method not in known:
            raise unknown_name(f"method of {' and '.join(names)}", method, known)


def _run(study: Study, name: str, config: ReproduceConfig, submit: Submit) -> None:
    experiment = load_experiment(name)
    budget = StepBudget(study)
    evaluations = [each for each in experiment.evaluations(study) if is_chosen(each, study, config)]
    trained = (each.method for each in evaluations if each.until != "tokenizer" or each.method.learned_tokenizer)
    untimed = budget.untimed(trained)
    if untimed and not study.given_data:
        # Steps are timed on the demonstrations before anything is trained.
        demonstrations = study.demonstrations()
        perform_all([demonstrations], submit, config.jobs, read=[demonstrations.name])
    _measure(budget, untimed, submit)
    perform_all(study.runs(evaluations, budget), submit, config.jobs)
    if experiment.measure is not None:
        submit(with_starts, study.folder, experiment.measure, study).result()


def is_chosen(evaluation: EvaluationRun, study: Study, config: ReproduceConfig) -> bool:
    """Return whether an evaluation is among those that --methods and --execute leave."""
    executed = find_simulator(study.sim).protocol.execute if evaluation.execute is None else evaluation.execute
    chosen = not config.methods or evaluation.method.slug in config.methods
    return chosen and config.execute in (None, executed)


def _measure(budget: StepBudget, methods: Sequence[Method], submit: Submit) -> None:
    if methods:
        names = ", ".join(method.name for method in methods)
        _tell(f"timing a few training steps of {names}")
        # All in one worker, one after the other: beside each other they would slow each other down.
        submit(budget.measure, methods).result()


def _tell(message: str) -> None:
    Console(stderr=True, soft_wrap=True).print(message, highlight=False)
