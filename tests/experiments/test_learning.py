"""figure-learning at scale smoke: every method with every number of minutes, and nothing trained twice."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oat.cli import main
from oat.errors import InvalidOption
from oat.experiments import learning
from oat.experiments.config import ReproduceConfig
from oat.experiments.experiment import load_experiment
from oat.experiments.reproduce import reproduce
from oat.experiments.study import budget as budgets
from oat.experiments.study.budget import StepBudget
from oat.experiments.study.methods import OAT, UNORDERED, with_minutes
from oat.experiments.study.scales import SCALES
from oat.experiments.study.study import Study
from oat.tables.files import load_tables
from oat.tables.table import Table

LABELS = ("BC", "DP", "QueST", "OAT×_8", "OAT_8")


@pytest.fixture(scope="module", autouse=True)
def _few_steps() -> Iterator[None]:
    """A moment of training is rounded to ten steps, and not to fifty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budgets, "_ROUND_TO", 10)
        yield


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The OUT of a figure of which only the smaller budget was run; what two methods' steps take is measured."""
    out = tmp_path_factory.mktemp("learning")
    folder = out / "smoke" / "detour"
    folder.mkdir(parents=True)
    known = ("policies/bc", "policies/dp", "tokenizers/quest", "policies/quest")
    (folder / "pace.json").write_text(json.dumps(dict.fromkeys(known, 0.1)))
    words = "reproduce figure-learning --sim detour --scale smoke --minutes 0.005 --jobs 1 --out"
    main([*words.split(), str(out)])
    return out


def read(out: Path) -> list[Table]:
    return load_tables(out / "smoke" / "detour" / "tables" / "figure-learning.json")


def test_what_was_asked_for_is_run_and_the_rest_is_said_not_to_be(drawn: Path) -> None:
    order, trainings = read(drawn)
    assert order.columns == ("minutes", *LABELS, "order")
    few, many = order.rows
    assert (few[0], many[0]) == ("0.005", "0.01")
    assert all("…" in cell for cell in few[1:-1])
    assert set(many[1:]) == {"not run"}
    assert all(label in few[-1] for label in LABELS)
    missing = "not run: " + ", ".join(f"{label}, 0.01 min" for label in LABELS)
    assert missing in order.notes
    assert missing in trainings.notes
    assert [row[0] for row in trainings.rows][:2] == ["BC, 0.005 min", "DP, 0.005 min"]
    claims = [note for note in trainings.notes if note.startswith("claim: ")]
    assert len(claims) == 4  # of the budget that was run
    assert claims[0].startswith("claim: OAT_8 acts better than BC after 0.005 minutes: undecided, too few episodes")
    assert (drawn / "smoke" / "detour" / "figures" / "figure-learning.png").read_bytes().startswith(b"\x89PNG")


def test_runs_carry_their_minutes_and_continue(drawn: Path) -> None:
    folder = drawn / "smoke" / "detour"
    names = {path.name for path in (folder / "policies").iterdir()}
    assert names == {f"{slug}-0.005min-seed0" for slug in ("bc", "dp", "quest", "oat-unordered", "oat")}
    done = {file: file.stat().st_mtime_ns for file in (folder / "done").iterdir()}
    before = read(drawn)
    reproduce(ReproduceConfig(("figure-learning",), "smoke", "detour", out=drawn, jobs=1, minutes=(0.005,)))
    assert done == {file: file.stat().st_mtime_ns for file in (folder / "done").iterdir()}
    assert read(drawn) == before


def test_a_pace_is_measured_once_for_all_budgets(drawn: Path) -> None:
    measured = json.loads((drawn / "smoke" / "detour" / "pace.json").read_text())
    # OAT×'s policy computes as OAT's.
    assert {name for name in measured if "oat" in name} == {
        *("tokenizers/oat", "tokenizers/oat-unordered", "policies/oat")
    }


def test_minutes_of_a_method_become_steps(tmp_path: Path) -> None:
    (tmp_path / "pace.json").write_text('{"policies/oat": 0.1, "tokenizers/oat": 0.1}')
    budget = StepBudget(Study(SCALES["cpu"], "metaworld", tmp_path))
    longer = with_minutes(OAT, 36)
    assert (longer.run("policies", 0), longer.prefixes) == ("policies/oat-36min-seed0", (8,))
    assert (budget.tokenizer_steps(longer), budget.policy_steps(longer)) == (7200, 14400)
    assert not budget.lacks(longer)
    assert budget.untimed([UNORDERED, with_minutes(UNORDERED, 4), longer]) == [UNORDERED]


def test_the_studys_own_minutes_are_the_runs_of_the_other_tables() -> None:
    study = Study(SCALES["cpu"], "metaworld", Path("R"), given_data=Path("D"))
    usual = {each.name for each in load_experiment("table-sim").evaluations(replace(study, seeds=1))}
    mine = {minutes: _names(replace(study, budgets=(minutes,))) for minutes in (4.0, 12.0)}
    assert mine[12.0] <= usual | {"records/oat-unordered-seed0"}
    assert all("-4min-seed0" in name for name in mine[4.0])
    assert _names(study) == {
        f"records/{slug}{minutes}-seed0"
        for slug in ("bc", "dp", "quest", "oat-unordered", "oat")
        for minutes in ("-4min", "", "-36min", "-108min")
    }
    assert {name for name in _names(replace(study, seeds=2)) if name.endswith("seed1")}


def _names(study: Study) -> set[str]:
    return {each.name for each in learning.evaluations(study)}


def test_minutes_are_refused_where_they_mean_nothing() -> None:
    with pytest.raises(InvalidOption, match="--minutes is for figure-learning"):
        ReproduceConfig(("table-sim",), minutes=(4,))
    with pytest.raises(InvalidOption, match="minutes must be positive and distinct, got 4 4"):
        ReproduceConfig(("figure-learning",), minutes=(4, 4))
    with pytest.raises(InvalidOption, match="minutes must be positive and distinct, got 0"):
        ReproduceConfig(("figure-learning",), minutes=(0,))


def test_equal_rates_are_told_as_equal(drawn: Path) -> None:
    few, _ = read(drawn)[0].rows
    rates = [cell.split()[0] for cell in few[1:-1]]
    assert few[-1].count("=") == len(rates) - len(set(rates))
