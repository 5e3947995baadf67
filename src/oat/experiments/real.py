"""table-real: trials of a robot (Table V), rehearsed with a simulated one; at the paper's scale, how to make them.

Every policy is served over a socket and drives the robot through the client, in a blind random order: all that
`oat trials` does with a real robot. Only the robot and its judge are simulated, and the table says so.
"""

from dataclasses import replace
from pathlib import Path

from oat.errors import InvalidOption
from oat.experiments.paper import numbers as paper
from oat.experiments.paper.trials import PUBLISHED_TRIALS
from oat.experiments.study.methods import COMPARED, DP, OAT, Method
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import circumstances, not_run, training_steps
from oat.io.commands import command_line
from oat.robots.trials.config import Driving, TrialsConfig
from oat.robots.trials.log import TrialLog
from oat.robots.trials.run import make_trials
from oat.robots.trials.table import trial_tables
from oat.sims import load_simulator
from oat.tables.interval import NOT_AVAILABLE
from oat.tables.table import Table

TRIALS_FOLDER = "trials"

_TASKS = 2  # as in the paper
# A simulated robot need not wait for its own clock: its steps, and not seconds, end a trial.
_AT_ONCE = Driving(fps=10_000, ahead=0, blend=0, max_age=600, seconds=3600)


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return the policies that act; at the paper's scale none, because those need the robot's own demonstrations."""
    if study.scale.name == "paper":
        return []
    if len(load_simulator(study.sim).tasks) < _TASKS:
        raise InvalidOption(f"trials are rehearsed at {_TASKS} tasks, which is not possible in {study.sim}")
    return [EvaluationRun(method, until="policy") for method in _methods(study)]


def measure(study: Study) -> None:
    """Make the trials that are missing, each of them with the simulated robot."""
    if study.scale.name != "paper":
        make_trials(_rehearsal(study))


def tables(study: Study) -> list[Table]:
    """Return the table of the trials that were made, or at the paper's scale the way to make them."""
    if study.scale.name == "paper":
        return [_instructions(study)]
    path = _log_file(study)  # published with a study, so that its table can be printed without its models
    if not path.exists():
        absent = not_run([label for label, _, _ in _rows(study)])
        return [Table("table-real: trials of a simulated robot", ("policy",), (), (*circumstances(study), *absent))]
    table, *remarks = trial_tables(TrialLog.read(path), PUBLISHED_TRIALS)
    steps = ", ".join(f"{each.method.name} {training_steps(study, each)}" for each in evaluations(study))
    return [replace(table, notes=(*circumstances(study), f"steps: {steps}", *table.notes)), *remarks]


def _methods(study: Study) -> tuple[Method, ...]:
    return (DP, OAT) if study.scale.name == "smoke" else COMPARED


def _rows(study: Study) -> list[tuple[str, Method, int | None]]:
    """Return for each row of the table its label, its method, and the number of tokens that it acts from."""
    return [
        (method.label(tokens), method, tokens) for method in _methods(study) for tokens in method.prefixes or (None,)
    ]


def _log_file(study: Study) -> Path:
    return study.folder / TRIALS_FOLDER / "table-real.jsonl"


def _rehearsal(study: Study) -> TrialsConfig:
    return TrialsConfig(
        log=_log_file(study),
        methods=tuple(
            _method_argument(label, str(study.folder / method.run("policies", 0)), tokens)
            for label, method, tokens in _rows(study)
        ),
        tasks=study.tasks[:_TASKS],
        trials=min(paper.REAL_TRIALS, study.episodes),
        robot=f"oat.robots.trials.rehearsal:{study.sim}",
        seed=0,
        driving=_AT_ONCE,
    )


def _method_argument(label: str, policy: str, tokens: int | None) -> str:
    """Return a method as `oat trials` takes it on its command line."""
    return f"{label}={policy}" if tokens is None else f"{label}={policy},num_tokens={tokens}"


def _instructions(study: Study) -> Table:
    """Return a table of what the paper found, with the command that repeats it."""
    rows = _rows(study)
    # Every policy needs a server of its own, because a server has loaded one policy.
    servers = {method: f"ws://127.0.0.1:{8000 + place}" for place, method in enumerate(_methods(study))}
    config = TrialsConfig(
        log=Path("trials.jsonl"),
        methods=tuple(_method_argument(label, servers[method], tokens) for label, method, tokens in rows),
        tasks=tuple(paper.REAL),
        trials=paper.REAL_TRIALS,
        robot="my_robot:connect",
    )
    return Table(
        "table-real: needs a real robot, and has not been run",
        ("policy", PUBLISHED_TRIALS.heading),
        tuple((label, PUBLISHED_TRIALS.successes.get(label, NOT_AVAILABLE)) for label, _, _ in rows),
        (
            "train the policies on the robot's own demonstrations (oat fit, oat train), serve each (oat serve), then "
            f"let an operator judge them, {config.trials} trials each: {command_line('trials', config)}",
            "at the other scales a simulated robot rehearses the whole protocol",
        ),
    )
