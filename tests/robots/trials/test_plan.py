"""Orders that nobody can guess, and in which every method has the same chances."""

from collections import Counter

from oat.robots.trials.config import Driving
from oat.robots.trials.plan import Trial
from tests.robots.trials.stage import METHODS, make_plan


def test_every_method_acts_once_in_every_block() -> None:
    plan = make_plan()
    order = plan.order()
    assert len(order) == len(set(order)) == 2 * 3 * 3
    assert [(trial.task, trial.block) for trial in order[::3]] == [(t, b) for t in ("push", "pull") for b in range(3)]
    for first in range(0, len(order), 3):
        block = order[first : first + 3]
        assert [trial.letter for trial in block] == ["A", "B", "C"]
        assert [trial.opens_block for trial in block] == [True, False, False]
        assert {plan.method(trial) for trial in block} == set(METHODS)


def test_the_order_is_even_and_the_seeds() -> None:
    many = make_plan(trials=300, tasks=("push",))
    orders = Counter(tuple(many.method(Trial("push", block, letter)) for letter in "ABC") for block in range(300))
    assert len(orders) == 6
    assert all(30 < count < 75 for count in orders.values())
    assert [make_plan().method(trial) for trial in many.order()[:60]] == [many.method(t) for t in many.order()[:60]]
    assert [make_plan(seed=8).method(trial) for trial in many.order()[:60]] != [
        many.method(t) for t in many.order()[:60]
    ]


def test_the_order_is_kept_for_ever() -> None:
    """Sheets hold letters only: another order for the same seed would give old trials to other methods."""
    drawn = "".join(str(list(METHODS).index(make_plan().method(trial))) for trial in make_plan().order())
    assert drawn == "021210102201201021"


def test_methods_of_a_block_draw_alike_and_blocks_do_not() -> None:
    seeds = {(trial.task, trial.block): make_plan().sampling_seed(trial) for trial in make_plan().order()}
    assert len(set(seeds.values())) == 6
    assert seeds["push", 1] == make_plan().sampling_seed(Trial("push", 1, "C"))


def test_differences_are_told() -> None:
    assert make_plan().differences(make_plan()) == []
    told = make_plan().differences(make_plan(trials=5, driving=Driving()))
    assert [each.split(":")[0] for each in told] == ["trials", "driving"]
    assert told[0] == "trials: 3, not 5"
