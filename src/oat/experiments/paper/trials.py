"""The paper's trials with a real robot, in the form that tables of our own trials show beside them."""

from oat.experiments.paper.claims import BETTER_THAN_RIVALS, MONOTONE
from oat.experiments.paper.numbers import REAL, REAL_TRIALS
from oat.robots.trials.table import PublishedTrials


def _successes(method: str) -> str:
    """Return the paper's successes at its two tasks."""
    found = [successes[method] for successes in REAL.values() if method in successes]
    return ", ".join(f"{number} / {REAL_TRIALS}" for number in found)


PUBLISHED_TRIALS = PublishedTrials(
    f"paper: {', '.join(REAL)}",
    {method: _successes(method) for method in dict.fromkeys(method for task in REAL.values() for method in task)},
    (*BETTER_THAN_RIVALS, MONOTONE),
)
