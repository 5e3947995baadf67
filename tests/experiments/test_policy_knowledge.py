"""table-policy at scale smoke: variants of the policy share one tokenizer, and each is trained as its name says."""

import json
from pathlib import Path

import pytest

from oat.experiments.study.budget import StepBudget
from oat.experiments.study.methods import OAT, TOKENS_ALONE
from oat.experiments.study.scales import SCALES
from oat.experiments.study.study import Study
from oat.policies import load_policy
from oat.tables.files import load_tables

VARIANTS = {
    "oat": ("lattice", 0.6, True, 10.0),
    "oat-paper-policy": ("classes", 0.0, False, 0.0),
    "oat-classes": ("classes", 0.0, True, 0.0),
    "oat-hard-targets": ("lattice", 0.0, True, 0.0),
    "oat-tokens-alone": ("lattice", 0.6, True, 0.0),
}


@pytest.fixture
def folder(detour_study: Path) -> Path:
    return detour_study / "smoke" / "detour"


def test_one_tokenizer_serves_policies_that_know_more_or_less(folder: Path) -> None:
    fitted = {path.name for path in (folder / "tokenizers").iterdir()}
    assert fitted & {f"{slug}-seed0" for slug in VARIANTS} == {"oat-seed0"}
    for slug, expected in VARIANTS.items():
        config = load_policy(folder / "policies" / f"{slug}-seed0").config
        names = ("codes", "soft_targets", "greedy", "remainder")
        assert tuple(getattr(config, name) for name in names) == expected


def test_rows_say_how_they_acted(folder: Path) -> None:
    (table,) = load_tables(folder / "tables" / "table-policy.json")
    labels = [row[0] for row in table.rows]
    assert labels[:5] == ["BC", "OAT_1", "OAT_2", "OAT_4", "OAT_8"]
    assert "OAT [tokens alone]_1" in labels
    decodings = {
        json.loads(line)["key"]["decoding"]
        for line in (folder / "records" / "oat-seed0" / "records.jsonl").read_text().splitlines()
        if "key" in line
    }
    assert decodings == {f"K={count} greedy remainder" for count in (1, 2, 4, 8)}
    assert len([note for note in table.notes if note.startswith("claim: ")]) == 6


def test_a_shared_tokenizer_keeps_the_steps_it_was_trained_for(tmp_path: Path) -> None:
    study = Study(SCALES["cpu"], "detour", tmp_path)
    (tmp_path / "pace.json").write_text(json.dumps({"tokenizers/oat": 0.1, "policies/oat-tokens-alone": 0.2}))
    budget = StepBudget(study)
    assert budget.tokenizer_steps(TOKENS_ALONE) == budget.tokenizer_steps(OAT)
    assert TOKENS_ALONE.run("tokenizers", 0) == OAT.run("tokenizers", 0)
