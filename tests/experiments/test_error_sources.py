"""table-errors: the errors on the way from a demonstrated chunk to the one that would be executed."""

from pathlib import Path

import pytest
import torch

from oat.experiments.error_sources import _accuracies, _errors_of_draws
from oat.io.training_record import Measures
from oat.tables.files import load_tables
from oat.tables.interval import NOT_AVAILABLE
from oat.tables.table import Table


@pytest.fixture
def table(detour_study: Path) -> Table:
    (table,) = load_tables(detour_study / "smoke" / "detour" / "tables" / "table-errors.json")
    return table


def test_every_method_has_the_errors_that_it_can_have(table: Table) -> None:
    rows = {row[0]: row[3:] for row in table.rows}
    assert list(rows) == ["BC", "DP", "Bin", "FAST", "QueST", "OAT", "OAT×", "RVQ"]
    assert [cell == NOT_AVAILABLE for cell in rows["BC"]] == [True] * 5 + [False]
    assert [cell == NOT_AVAILABLE for cell in rows["DP"]] == [True, False, False, False, True, False]
    assert NOT_AVAILABLE not in (*rows["OAT"], *rows["QueST"], *rows["OAT×"], *rows["Bin"])


def test_accuracy_is_told_of_every_position_of_a_short_sequence(table: Table) -> None:
    told = {row[0]: row[2] for row in table.rows}
    assert {len(told[name].split()) for name in ("OAT", "QueST", "OAT×", "Bin")} == {8}
    seeds = [Measures(accuracy_of_token={1: 0.5, 2: 0.25}), Measures(accuracy_of_token={1: 1.0, 2: 0.75}), Measures()]
    assert _accuracies(seeds) == "75 50"


def test_the_best_of_several_is_no_worse_than_one(table: Table) -> None:
    for row in table.rows:
        best, one = row[4:6]
        assert NOT_AVAILABLE in (best, one) or float(best) <= float(one)


def test_draws_that_do_not_decode_are_left_out() -> None:
    target = torch.zeros(2, 4, 1)
    drawn = torch.stack([torch.full_like(target, torch.nan), torch.ones_like(target), -torch.ones_like(target)])
    drawn[:, 1] = torch.nan
    errors = _errors_of_draws(drawn, target, torch.ones(2, 4, dtype=torch.bool))
    assert (float(errors["mean"][0]), float(errors["best"][0])) == (0.0, 1.0)
    assert all(bool(each[1].isnan()) for each in errors.values())
