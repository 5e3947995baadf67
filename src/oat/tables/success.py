"""The table of success: evaluations, experiments, trials and the page fill in its rows, and choose among its columns.

A row is a policy, on one task or on several side by side. A new column is a field of `SuccessRow` that somebody fills
in, and one line among the columns below.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

from oat.tables.interval import NOT_AVAILABLE, Interval, format_percent, format_percent_range
from oat.tables.table import Table

POOLED = "all tasks"
"""The name under which a row keeps its success on all tasks, each counting alike."""


@dataclass(frozen=True)
class Rate:
    """Hold how often a policy succeeded in a number of episodes."""

    interval: Interval
    episodes: int
    successes: int


@dataclass(frozen=True)
class Spread:
    """Hold the mean over seeds as papers print it."""

    mean: float
    error: float
    """The standard error; NaN for one seed."""
    seeds: int
    of: str
    """"training" where policies were trained several times, else "evaluation": groups of one policy's episodes."""


@dataclass(frozen=True)
class SuccessRow:
    """Hold what is known of a policy's success; what is None was not measured."""

    policy: str
    rates: Mapping[str, Rate] = field(default_factory=dict)
    """Success rates by task, and under `POOLED` on all of several tasks; empty where nothing was run."""
    task: str = ""
    """The task, where every task has a row of its own."""
    spread: Spread | None = None
    score: Interval | None = None
    """The mean of each episode's best score, where the benchmark measures anything finer than success."""
    episode_steps: float | None = None
    tokens_per_chunk: float | None = None
    jerk: float | None = None
    inference_ms: float | None = None
    jump: float | None = None
    """From the last action of one chunk to the first of the next, in action units."""
    training_steps: str | None = None
    held_still: float | None = None
    """The share of the time in which the robot waited for an action."""
    published: str | None = None
    """The paper's number, as text."""

    @property
    def overall(self) -> Rate | None:
        """Return the success on all tasks that were run, or on the only one."""
        return self.rates.get(POOLED) or next(iter(self.rates.values()), None)


@dataclass(frozen=True)
class Column:
    """Describe a column by its heading and by the cell that it makes of a row; None shows that there is no value."""

    heading: str
    cell: Callable[[SuccessRow], str | None]
    optional: bool = False
    """Whether it is left out where no row has a value."""


def _percent(rate: Rate | None) -> str | None:
    return None if rate is None else f"{100 * rate.interval.estimate:.1f}"


def _interval(rate: Rate | None) -> str | None:
    return None if rate is None else format_percent_range(rate.interval)


def _count(rate: Rate | None) -> str | None:
    return None if rate is None else f"{rate.successes} / {rate.episodes}"


def _episodes(row: SuccessRow, spec: str) -> str | None:
    return None if row.overall is None else f"{row.overall.episodes:{spec}}"


def _error(row: SuccessRow) -> str | None:
    """Write the standard error, which one seed does not have."""
    return None if row.spread is None or row.spread.seeds == 1 else f"{100 * row.spread.error:.1f}"


def _training_error(row: SuccessRow) -> str | None:
    """Write the standard error between trainings, and how many there were."""
    return None if row.spread is None or row.spread.of != "training" else f"{_error(row)} ({row.spread.seeds})"


def _number(value: float | None, spec: str) -> str | None:
    return None if value is None else f"{value:{spec}}"


_POLICY = Column("policy", lambda row: row.policy)
_TASK = Column("task", lambda row: row.task)
_INTERVAL = Column("95 %", lambda row: _interval(row.overall))
_TOKENS = Column("tokens", lambda row: _number(row.tokens_per_chunk, ".3g"))
_MILLISECONDS = Column("ms", lambda row: _number(row.inference_ms, ".1f"))
_JUMP = Column("jump", lambda row: _number(row.jump, ".3g"), optional=True)
_SCORE = Column("score", lambda row: None if row.score is None else format_percent(row.score.estimate), optional=True)
_SCORE_INTERVAL = Column(
    "95 % of score", lambda row: None if row.score is None else format_percent_range(row.score), optional=True
)
_PUBLISHED = Column("paper", lambda row: row.published, optional=True)

EVALUATION_COLUMNS = (
    _POLICY,
    _TASK,
    Column("n", lambda row: _episodes(row, "d")),
    Column("success", lambda row: _percent(row.overall)),
    _INTERVAL,
    Column("±", _error, optional=True),
    _SCORE,
    Column("steps", lambda row: _number(row.episode_steps, ".0f")),
    _TOKENS,
    Column("jerk", lambda row: _number(row.jerk, ".2g")),
    _MILLISECONDS,
)
"""Columns of `oat eval`: a row for every policy and task, with what it took."""

COST_COLUMNS = (_TOKENS, Column(_MILLISECONDS.heading, _MILLISECONDS.cell, optional=True), _JUMP)
"""Further columns of a study that compares ways to decode: what a chunk takes, and how chunks fit together."""

TASK_BY_TASK_COLUMNS = (
    _TASK,
    _POLICY,
    Column("success %", lambda row: _percent(row.overall)),
    _INTERVAL,
    _PUBLISHED,
)
"""Columns of a row for every task and policy, as the appendix of the paper has it."""


def study_columns(tasks: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of a study: tasks side by side, their average, and how much trainings differ."""
    return (
        _POLICY,
        Column("steps", lambda row: row.training_steps),
        *map(_task_percent, tasks),
        *((Column("average", lambda row: _percent(row.overall)),) if len(tasks) > 1 else ()),
        _INTERVAL,
        Column("± seeds", _training_error, optional=True),
        _SCORE,
        _SCORE_INTERVAL,
        _PUBLISHED,
    )


def overall_columns(benchmarks: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of several benchmarks side by side, and of all their tasks, where a policy met them all."""
    return (
        _POLICY,
        *map(_task_percent, benchmarks),
        Column("overall", lambda row: _percent(row.rates.get(POOLED))),
        Column("95 %", lambda row: _interval(row.rates.get(POOLED))),
        _PUBLISHED,
    )


def page_columns(tasks: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of the page's table: tasks side by side, all of them, and what a chunk costs."""
    return (
        _POLICY,
        *map(_task_percent, tasks),
        Column("overall", lambda row: _percent(row.overall)),
        _INTERVAL,
        Column("episodes", lambda row: _episodes(row, ",")),
        _TOKENS,
        _MILLISECONDS,
    )


def trial_columns(tasks: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of trials, which are few: successes among them, not percent."""
    shown = (*tasks, POOLED) if len(tasks) > 1 else tasks
    return (
        _POLICY,
        *(column for task in shown for column in _task_count(task)),
        Column("held still", lambda row: _number(row.held_still, ".0%")),
        Column("tokens per chunk", _TOKENS.cell, optional=True),  # logs of before do not count them
    )


def published_column(heading: str) -> Column:
    """Return the column of what was published, where it is to be seen that nothing was."""
    return Column(heading, lambda row: row.published)


def _task_percent(task: str) -> Column:
    return Column(task, lambda row: _percent(row.rates.get(task)))


def _task_count(task: str) -> tuple[Column, Column]:
    return (
        Column(task, lambda row: _count(row.rates.get(task))),
        Column("95 %", lambda row: _interval(row.rates.get(task))),
    )


def success_table(
    title: str, rows: Sequence[SuccessRow], columns: Sequence[Column], notes: Sequence[str] = ()
) -> Table:
    """Return the table of these rows, without the optional columns that no row has a value for."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    # A column of dashes would only say that nobody measured it.
    kept = [not column.optional or any(row[at] is not None for row in cells) for at, column in enumerate(columns)]
    return Table(
        title,
        tuple(column.heading for column in compress(columns, kept)),
        tuple(tuple(NOT_AVAILABLE if cell is None else cell for cell in compress(row, kept)) for row in cells),
        tuple(notes),
    )
