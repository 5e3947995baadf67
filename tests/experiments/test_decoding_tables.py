"""table-decoding and table-depth at scale smoke: heads, late chunks and controls are run, recorded and shown."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from oat.cli import main
from oat.evaluation.decoding_rules import count_depths
from oat.evaluation.records import RECORDS_FILE, read_records
from oat.experiments import decoding_rules, depth
from oat.experiments.study.budget import StepBudget
from oat.experiments.study.methods import DP, OAT, QUEST, UNORDERED
from oat.experiments.study.scales import SCALES
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import Row
from oat.tables.files import load_tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("decoding")
    words = "reproduce table-decoding table-depth --sim detour --scale smoke --jobs 1 --out"
    main([*words.split(), str(out)])
    return out / "smoke" / "detour"


def _decodings(folder: Path, run: str) -> set[str]:
    return {record.key.decoding for record in read_records(folder / "records" / run / RECORDS_FILE)}


def test_every_way_is_recorded_by_its_name(folder: Path) -> None:
    assert _decodings(folder, "oat-seed0-medoid") == {"K=8 medoid-of-8"}
    assert _decodings(folder, "oat-seed0-commit-late2") == {"K=8 medoid-of-8 commit-2"}
    assert _decodings(folder, "oat-seed0-guided-late2") == {"K=8 guided-of-8 commit-2"}
    assert _decodings(folder, "oat-seed0-greedy") == {"K=8 greedy"}
    (stopped,) = _decodings(folder, "oat-seed0-residual-30")
    assert stopped.startswith("K=8 greedy residual=0.")
    late = read_records(folder / "records" / "oat-seed0-commit-late2" / RECORDS_FILE)
    assert all(record.samples == 8 and record.jump is not None for record in late)


def test_the_control_has_the_depths_of_its_rule(folder: Path) -> None:
    counts = count_depths(folder / "records" / "oat-seed0-residual-30")
    total = sum(counts.values())
    (name,) = _decodings(folder, "oat-seed0-random-residual-30")
    shares = [float(each) for each in name.split("random-depth=")[1].split("/")]
    assert shares == pytest.approx([100 * counts[number + 1] / total for number in range(len(shares))], abs=0.5)


def test_tables_show_what_a_chunk_takes(folder: Path) -> None:
    compared, late = load_tables(folder / "tables" / "table-decoding.json")
    assert [row[0] for row in compared.rows] == ["OAT_8 medoid of 8"]
    milliseconds = compared.columns.index("ms")
    assert all(float(row[milliseconds]) > 0 for row in compared.rows)
    assert "jump" in late.columns
    (table,) = load_tables(folder / "tables" / "table-depth.json")
    assert [row[0] for row in table.rows] == [
        "OAT_8 K = 8",
        "OAT_8 residual=30%",
        "OAT_8 random as residual=30%",
        "OAT_8 hindsight=10%",
    ]
    assert any(note.startswith("claim: residual=30% acts better than as many tokens at random") for note in table.notes)
    assert any(note.startswith("goal: residual=30%") for note in table.notes)
    assert any(re.match(r"asking a head after every token: [\d.]+ ms for a chunk of 8", note) for note in table.notes)
    for name in ("table-depth", "table-depth-over-time"):
        assert (folder / "figures" / f"{name}.png").exists()


def test_at_full_size_every_rule_has_its_control(tmp_path: Path) -> None:
    study = Study(SCALES["cpu"], "metaworld", tmp_path)
    runs = {run.name for run in depth.evaluations(study)}
    assert len(runs) == 2 * 3 * (8 + 6 + 6 + 2)
    ends = [f"{price}{executed}" for price in (20, 60, 150) for executed in ("", "-execute8")]
    assert {f"records/oat-seed2-random-value-{end}" for end in ends} <= runs
    (tmp_path / "pace.json").write_text(json.dumps({}))
    made = {run.name: run for run in study.runs(depth.evaluations(study), StepBudget(study))}
    control = made["records/oat-seed0-random-residual-30"]
    assert "--stop matched=records/oat-seed0-residual-30" in control.command
    assert "records/oat-seed0-residual-30" in control.needs
    assert made["heads/oat-seed0"].command == ("oat calibrate policies/oat-seed0 --data demos --out heads/oat-seed0")
    half = made["records/oat-seed0-random-residual-30-execute8"]
    assert "--stop matched=records/oat-seed0-residual-30-execute8" in half.command
    assert made["heads/oat-seed0-execute8"].command.endswith("--out heads/oat-seed0-execute8 --execute 8")


def test_tokens_are_drawn_as_by_the_policies_of_such_demonstrations(tmp_path: Path) -> None:
    """The most likely ones of a program's, sampled ones of people's, in every rule and its control."""
    for sim, flag in (("metaworld", "--decoding tokens --greedy"), ("pusht", "--decoding tokens")):
        study = Study(SCALES["cpu"], sim, tmp_path / sim, None if sim == "metaworld" else tmp_path / "given")
        folder = tmp_path / sim
        folder.mkdir()
        (folder / "pace.json").write_text(json.dumps({}))
        made = [
            run for run in study.runs(depth.evaluations(study), StepBudget(study)) if run.name.startswith("records")
        ]
        assert len(made) == 2 * 3 * (8 + 6 + 6 + 2)
        assert all(flag in run.command for run in made)
        assert all(("greedy" in run.command) is (sim == "metaworld") for run in made)
    control = next(run for run in made if run.name == "records/oat-seed0-random-residual-60-sampled")
    assert control.needs[-1] == "records/oat-seed0-residual-60-sampled"


def test_first_come_the_first_seed_and_what_decides(tmp_path: Path) -> None:
    study = Study(SCALES["cpu"], "metaworld", tmp_path)
    for experiment in (decoding_rules, depth):
        seeds = [run.seed for run in experiment.evaluations(study)]
        assert seeds == sorted(seeds)
    compared = [run.name for run in decoding_rules.evaluations(study)]
    assert compared[:4] == [
        "records/oat-seed0",
        *(f"records/oat-seed0-{rule}" for rule in ("greedy", "sampled", "medoid")),
    ]
    assert [run.name for run in depth.evaluations(study)][:3] == [
        f"records/oat-seed0-{rule}" for rule in ("greedy", "residual-30", "random-residual-30")
    ]


def test_no_evaluation_repeats_another(tmp_path: Path) -> None:
    study = Study(SCALES["cpu"], "metaworld", tmp_path)
    (tmp_path / "pace.json").write_text(json.dumps({}))
    asked = [*decoding_rules.evaluations(study), *depth.evaluations(study)]
    runs = {run.name: run for run in study.runs(asked, StepBudget(study)) if run.name.startswith("records/")}
    assert len({str(replace(run.config, out=Path())) for run in runs.values()}) == len(runs) == 285
    # Decoding as trained is the main table's, whose records count here.
    main = {run.name for run in study.evaluations((OAT, UNORDERED, QUEST, DP))}
    assert main <= runs.keys()


def test_regression_is_a_way_of_its_own_where_people_demonstrated(tmp_path: Path) -> None:
    exact = {}
    for sim in ("metaworld", "pusht"):
        study = Study(SCALES["cpu"], sim, tmp_path / sim)
        exact[sim] = {run.name for run in decoding_rules.evaluations(study) if "exact" in run.name and run.seed == 0}
    names = (f"records/{method}-seed0-exact" for method in ("oat", "oat-unordered", "quest"))
    assert exact == {"metaworld": set(), "pusht": {each + end for each in names for end in ("", "-execute8")}}


def test_rules_are_held_against_the_default_where_that_samples_too(tmp_path: Path) -> None:
    chains = {}
    for sim in ("metaworld", "pusht"):
        chains[sim] = {chain for _, chain in decoding_rules._claims(Study(SCALES["cpu"], sim, tmp_path / sim), None)}
    against_default = ("OAT_8 as trained", "OAT_8 medoid of 8")
    assert against_default in chains["pusht"] - chains["metaworld"]
    for each in chains.values():
        assert {("OAT_8 sampled", "OAT_8 medoid of 8"), ("DP as trained", "DP medoid of 8")} <= each
        assert not any(worse == better for worse, better in each)


def test_a_study_that_was_cut_short_compares_what_both_have_met(folder: Path) -> None:
    """A rule with fewer training seeds than all tokens is held against the same episodes of these."""
    study = Study(SCALES["smoke"], "detour", folder)
    whole, rule, *_ = decoding_rules.read_decoding_rows(study, depth.evaluations(study))
    solved = tuple(replace(each, success=True, best_score=1.0) for each in whole.records)
    keys = [replace(each.key, training_seed=1, condition=each.key.condition + 1000) for each in solved]
    second_seed = tuple(
        replace(each, success=False, best_score=0.0, key=key) for each, key in zip(solved, keys, strict=True)
    )
    longer = replace(whole, records=(*solved, *second_seed))
    shorter = replace(rule, records=tuple(replace(each, success=True, best_score=1.0) for each in rule.records))
    assert "(+0.0 points" in depth.compare_goal(longer, shorter)


def test_the_goal_is_judged_by_score_where_that_is_finer_than_success(folder: Path) -> None:
    study = Study(SCALES["smoke"], "detour", folder)
    whole, rule, *_ = decoding_rules.read_decoding_rows(study, depth.evaluations(study))
    better, worse = (
        replace(row, records=tuple(replace(each, success=False, best_score=score) for each in row.records))
        for row, score in ((whole, 0.9), (rule, 0.6))
    )
    told = depth.compare_goal(better, worse)
    assert "(-30.0 points" in told
    assert told.endswith("by score")


def test_a_number_of_executed_actions_that_was_not_run_has_no_table(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smoke = Study(SCALES["smoke"], "detour", folder)
    ran, *_ = decoding_rules.read_decoding_rows(smoke, depth.evaluations(smoke))

    def read(study: Study, runs: Sequence[EvaluationRun]) -> list[Row]:
        named = {decoding_rules.label(run): run for run in runs}
        return [
            replace(ran, label=name, records=ran.records if run.execute == 8 else ()) for name, run in named.items()
        ]

    monkeypatch.setattr(depth, "read_decoding_rows", read)
    (table,) = depth.tables(Study(SCALES["cpu"], "detour", tmp_path))
    assert "8 actions executed" in table.title
    assert "not run: the usual number of actions executed" in table.notes


def test_rules_are_held_against_the_fixed_numbers_around_theirs(folder: Path) -> None:
    study = Study(SCALES["smoke"], "detour", folder)
    fixed, rule, *_ = decoding_rules.read_decoding_rows(study, depth.evaluations(study))
    solved = replace(fixed, records=tuple(replace(each, success=True, best_score=1.0) for each in fixed.records))
    failed = tuple(replace(each, success=False, best_score=0.0) for each in rule.records)
    many, few = (
        replace(rule, records=tuple(replace(each, tokens=number * each.chunks) for each in failed)) for number in (8, 3)
    )
    (told,) = depth._beside_fixed(study, [solved, many])
    assert re.fullmatch(r"residual=30% with 8\.00 tokens: -100\.0 points \(p = [\d.]+\) to K = 8", told)
    assert not list(depth._beside_fixed(study, [solved, few]))
