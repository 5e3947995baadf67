"""table-drift: how far policies are from demonstrated states while they act."""

from pathlib import Path

import numpy as np
import pytest

from oat.experiments.drift import Course, DemonstratedStates, _row
from oat.tables.files import load_tables
from oat.tables.interval import NOT_AVAILABLE


def test_every_method_acts_and_demonstrations_stay_near_each_other(detour_study: Path) -> None:
    (table,) = load_tables(detour_study / "smoke" / "detour" / "tables" / "table-drift.json")
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == ["held-out demonstrations", "BC", "DP", "Bin", "FAST", "QueST", "OAT", "OAT×", "RVQ"]
    assert {row[-1] for name, row in rows.items() if name != "held-out demonstrations"} <= {
        f"{n} of 2" for n in range(3)
    }
    assert float(rows["held-out demonstrations"][1]) < 1
    assert all(float(row[1]) >= 0 for row in rows.values())


def test_distances_are_in_deviations_of_numbers_that_change() -> None:
    states = np.array([[0.0, 5.0, 1.0], [10.0, 5.0, 3.0]])
    known = DemonstratedStates(states)
    assert known.distances(states) == pytest.approx([0, 0])
    # Deviations are 5 and 1: half of one in the first number, the goal is ignored.
    assert known.distances(np.array([[2.5, 99.0, 1.0]])) == pytest.approx([0.5 / 2**0.5])


def test_small_distances_are_seen_among_many_states_far_from_zero() -> None:
    states = 1e4 + np.random.default_rng(0).normal(size=(200, 3))
    moved = DemonstratedStates(states).distances(states + 1e-3)
    assert moved == pytest.approx(np.full(200, 1e-3), rel=0.1)


def test_a_row_tells_of_the_episodes_that_last_so_long() -> None:
    courses = [Course(np.array([0.0, 1.0]), success=True), Course(np.array([2.0, 3.0, 6.0]), success=False)]
    assert _row("x", "0", courses)[2:] == ("1.00", "2.00", "6.00", *[NOT_AVAILABLE] * 3, "0.50", "3.67", "1 of 2")
