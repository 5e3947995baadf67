"""Run `oat trials`: bring the robot, the policy servers and the operator together, and show the table at the end."""

import importlib
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from rich.console import Console

from oat.errors import InvalidOption, unknown_name
from oat.interfaces import Robot
from oat.io.progress import progress_bar
from oat.robots.trials.config import TrialsConfig
from oat.robots.trials.log import Revealed, TrialLog
from oat.robots.trials.operator import Operator
from oat.robots.trials.plan import TrialPlan
from oat.robots.trials.session import Judge, run_trials
from oat.robots.trials.table import PublishedTrials, trial_tables
from oat.serving.client import PolicyClient
from oat.serving.config import ServeConfig, read_key
from oat.tables.files import write_tables
from oat.tables.terminal import to_terminal


def judge_policies(config: TrialsConfig, published: PublishedTrials | None = None) -> None:
    """Make the trials that are missing, and show the table when all are made or it was asked for.

    What was published of the same methods stands beside them.
    """
    if config.table or config.reveal:
        _show(TrialLog.read(config.log), config.reveal, published)
        return
    log = make_trials(config)
    if log.remaining:
        _say(f"{len(log.judged)} of {len(log.plan.order())} trials are in {log.path}; the same command continues")
    else:
        _show(log, False, published)


def make_trials(config: TrialsConfig) -> TrialLog:
    """Make the trials that are missing, and return their log.

    A robot that can judge itself, as simulated ones can, needs no operator.
    """
    log = TrialLog.open(config.log, plan_trials(config))
    if not log.remaining:
        return log
    assert config.robot is not None
    robot = make_robot(config.robot)
    with ExitStack() as stack:
        sources = {name: stack.enter_context(client) for name, client in _connect(config, stack)}
        if isinstance(robot, Judge):
            bar = stack.enter_context(progress_bar("trials", len(log.plan.order()), len(log.judged)))
            run_trials(log, robot, robot, sources, lambda record: bar.advance(record.verdict != "void"))
        else:
            stack.enter_context(_robot_stops_on_hangup())
            run_trials(log, robot, Operator(log.plan), sources)
    return log


def plan_trials(config: TrialsConfig) -> TrialPlan:
    """Return the plan of a configuration; without a seed it takes that of the log, or draws one for a new log."""
    assert config.robot is not None
    seed = config.seed
    if seed is None:
        seed = TrialLog.read(config.log).plan.seed if config.log.exists() else secrets.randbits(32)
    methods = {contender.name: contender.num_tokens for contender in config.contenders}
    return TrialPlan(methods, config.tasks, config.trials, seed, config.robot, config.driving)


def make_robot(name: str) -> Robot:
    """Return the robot that MODULE:FUNCTION makes; modules of the current directory are found, too."""
    module_name, _, function = name.partition(":")
    if not module_name or not function:
        raise InvalidOption(f"a robot is given as MODULE:FUNCTION, got {name!r}")
    if str(Path.cwd()) not in sys.path:  # a console script does not look into the current directory
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InvalidOption(f"the robot's module {module_name!r} cannot be imported: {error}") from error
    factory: Callable[[], object] | None = getattr(module, function, None)
    if not callable(factory):
        functions = [each for each in dir(module) if callable(getattr(module, each)) and not each.startswith("_")]
        raise unknown_name(f"function of {module_name}", function, functions)
    robot = factory()
    if not isinstance(robot, Robot):
        raise InvalidOption(f"{name} gives a {type(robot).__name__}, which lacks some of observe, act and stop")
    return robot


def _connect(config: TrialsConfig, stack: ExitStack) -> Iterator[tuple[str, PolicyClient]]:
    """Yield a client for every method; policies of this machine are loaded once, and served until the stack closes."""
    key = None if config.api_key_file is None else read_key(config.api_key_file).decode()
    served: dict[str, str] = {}
    for contender in config.contenders:
        if not contender.is_served and contender.policy not in served:
            served[contender.policy] = stack.enter_context(_serving(Path(contender.policy)))
        url = served.get(contender.policy, contender.policy)
        own_key = None if contender.policy in served else key  # our own server asks for none
        client = PolicyClient(url, own_key, patience=config.patience, num_tokens=contender.num_tokens)
        yield contender.name, client


@contextmanager
def _serving(policy: Path) -> Iterator[str]:
    """Yield the address of a server on a thread of this process."""
    from oat.serving.background import serving
    from oat.serving.server import load_servable

    config = ServeConfig(policy, port=0, max_batch=1)  # one robot asks for one chunk at a time
    predictor, decoding = load_servable(config)
    with serving(predictor, config, decoding) as server:
        yield f"ws://{config.host}:{server.port}"


@contextmanager
def _robot_stops_on_hangup() -> Iterator[None]:
    """End the series after SIGHUP or SIGTERM as after Ctrl-C; by default they would leave the robot moving."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGHUP, signal.SIGTERM)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


def _show(log: TrialLog, reveal: bool, published: PublishedTrials | None) -> None:
    """Print the table and write it beside the log; before the end only on request, which the log records."""
    missing = len(log.remaining)
    total = len(log.plan.order())
    if missing and log.judged_when_revealed is None:
        if not reveal:
            raise InvalidOption(
                f"{missing} of {total} trials are missing in {log.path}, so its letters stay letters; "
                "--reveal shows the methods now, and the log will say so"
            )
        log.append(Revealed(datetime.now(UTC).isoformat(timespec="seconds")))
    tables = trial_tables(log, published)
    write_tables(log.path, tables)
    for table in tables:
        Console().print(to_terminal(table))


def _say(text: str) -> None:
    Console(soft_wrap=True, highlight=False).print(text, markup=False)
