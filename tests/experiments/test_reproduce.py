"""The paper's tables by name, really run at smoke scale: demonstrations, tokenizers, policies, rollouts, print."""

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oat.cli import main
from oat.errors import InvalidOption, UnknownName
from oat.experiments.catalogue import EXPERIMENTS
from oat.experiments.config import ReproduceConfig
from oat.experiments.experiment import load_experiment
from oat.experiments.reproduce import is_chosen, reproduce
from oat.experiments.study.budget import StepBudget
from oat.experiments.study.methods import (
    BC,
    BIN,
    DP,
    FAST,
    FULL_REGISTERS,
    OAT,
    QUEST,
    RVQ,
    UNORDERED,
    UNORDERED_FULL_REGISTERS,
    Method,
    with_levels,
)
from oat.experiments.study.runs import Run
from oat.experiments.study.scales import SCALES, Scale
from oat.experiments.study.scheduler import RunFailed, open_workers, perform_all
from oat.experiments.study.study import EvaluationRun, Study
from oat.sims.config import CollectConfig, SimulatorName
from oat.tables.files import load_tables
from oat.tables.latex import to_latex
from oat.tables.markdown import to_markdown
from tests.datasets import make_episodes, write_npz

ABLATIONS: tuple[str, ...] = ("table-ordering", "table-horizons", "table-codebook")


@pytest.fixture(autouse=True)
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


@pytest.mark.parametrize(
    ("sim", "name"), [("metaworld", "table-sim"), *(("detour", name) for name in ABLATIONS)], ids=lambda value: value
)
def test_a_table_runs(sim: str, name: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    out: Path = request.getfixturevalue("smoke_study" if sim == "metaworld" else "detour_study")
    capsys.readouterr()
    main(["reproduce", name, "--sim", sim, "--scale", "smoke", "--out", str(out), "--jobs", "2"])
    folder = out / "smoke" / sim
    tables = load_tables(folder / "tables" / f"{name}.json")
    shown = " ".join(capsys.readouterr().out.split())
    for table in tables:
        assert table.title in shown
        assert all("—" not in row[2:4] for row in table.rows), "a row without episodes"
        assert any("too few for any claim" in note for note in table.notes)
        assert to_markdown(table) in (folder / "tables" / f"{name}.md").read_text("utf-8")
        assert to_latex(table) in (folder / "tables" / f"{name}.tex").read_text("utf-8")


def test_what_is_done_is_not_done_again(detour_study: Path) -> None:
    """The second time there is nothing to do but to print."""
    config = ReproduceConfig(("table-codebook",), "smoke", "detour", out=detour_study)
    done = detour_study / "smoke" / "detour" / "done"
    before = {file: file.stat().st_mtime_ns for file in done.iterdir()}
    assert any("policies-oat-seed0" in file.name for file in before)
    begin = time.perf_counter()
    reproduce(config)
    assert time.perf_counter() - begin < 5
    assert before == {file: file.stat().st_mtime_ns for file in done.iterdir()}


def test_what_is_published_is_enough_for_the_tables(detour_study: Path, tmp_path: Path) -> None:
    """Without checkpoints, demonstrations and logs."""
    config = ReproduceConfig(("table-codebook",), "smoke", "detour", out=detour_study, publish=tmp_path)
    reproduce(config)
    folder = tmp_path / "smoke" / "detour"
    assert {path.name for path in folder.iterdir()} <= {
        "done",
        "records",
        "tables",
        "figures",
        "paths",
        "trials",
        "latency.json",
    }
    table = folder / "tables" / "table-codebook.md"
    before = table.read_text("utf-8")
    table.unlink()
    reproduce(replace(config, out=tmp_path, only_tables=True, publish=None))
    assert table.read_text("utf-8") == before


def test_the_papers_decoding_in_the_papers_tables(detour_study: Path) -> None:
    """By the same policies, beside the usual table."""
    folder = detour_study / "smoke" / "detour"
    before = (folder / "tables" / "table-codebook.json").read_bytes()
    words = ["reproduce", "table-codebook", "--sim", "detour", "--scale", "smoke", "--out", str(detour_study)]
    main([*words, "--decoding", "paper"])
    (table, *_) = load_tables(folder / "tables" / "table-codebook-paper.json")
    assert all("—" not in row[2:4] for row in table.rows), "a row without episodes"
    assert any("--decoding paper" in note for note in table.notes)
    assert (folder / "tables" / "table-codebook.json").read_bytes() == before
    study = Study(SCALES["smoke"], "detour", folder, decoding="paper")
    (run, *_) = study.evaluations([OAT])
    assert {record.key.decoding for record in study.all_records(run)} == {"K=1", "K=2", "K=4", "K=8"}
    with pytest.raises(InvalidOption, match="table-decoding settles how policies decode: leave out --decoding"):
        ReproduceConfig(("table-sim", "table-decoding"), decoding="paper")


def test_a_study_continues_from_what_was_published_of_it(detour_study: Path, tmp_path: Path) -> None:
    """Models that are needed again are trained again, only those, and give the same episodes."""
    reproduce(ReproduceConfig(("figure-modes",), "smoke", "detour", out=detour_study, publish=tmp_path))
    folder = tmp_path / "smoke" / "detour"
    evaluation = EvaluationRun(BC)
    study = Study(SCALES["smoke"], "detour", folder)
    before = study.all_records(evaluation)
    marked = {file.name: file.read_bytes() for file in (folder / "done").iterdir()}
    shutil.rmtree(folder / evaluation.name)
    (folder / "done" / "records-bc-seed0.json").unlink()
    reproduce(ReproduceConfig(("figure-modes",), "smoke", "detour", out=tmp_path))
    assert [path.name for path in (folder / "policies").iterdir()] == ["bc-seed0"]
    after = study.all_records(evaluation)
    assert [(each.key.condition, each.steps, each.jerk) for each in after] == [
        (each.key.condition, each.steps, each.jerk) for each in before
    ]
    marked.pop("records-bc-seed0.json")
    assert marked.items() <= {file.name: file.read_bytes() for file in (folder / "done").iterdir()}.items()


def test_a_result_of_another_command_is_refused(smoke_study: Path) -> None:
    study = Study(SCALES["smoke"], "metaworld", smoke_study / "smoke" / "metaworld")
    other = replace(study, scale=replace(study.scale, steps=21))
    with pytest.raises(InvalidOption, match=r"made by `oat fit .*--steps 20.*` *, which is not `oat fit .*--steps 21"):
        _ = other.tokenizer(OAT, 0, other.scale.steps).done


def test_without_runs_a_table_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduce(ReproduceConfig(("table-sim",), "smoke", out=tmp_path, only_tables=True))
    shown = " ".join(capsys.readouterr().out.split())
    assert "not run: BC, DP, Bin, FAST, QueST, OAT_1, OAT_2, OAT_4, OAT_8" in shown
    assert "undecided, DP, OAT_8 was not run" in shown


def test_policies_that_see_something_else_are_studied_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ReproduceConfig(
        ("table-sim",), "smoke", out=tmp_path, only_tables=True, observe=("observation.images.top",)
    )
    reproduce(config)
    assert (tmp_path / "smoke" / "metaworld-top" / "tables" / "table-sim.md").exists()
    assert "smoke, preset tiny, metaworld, observation.images.top;" in " ".join(capsys.readouterr().out.split())
    policy = Study(SCALES["smoke"], "metaworld", tmp_path, observe=config.observe).policy(OAT, 0, 20)
    assert " --observe observation.images.top " in f"{policy.command} "


def test_the_cameras_that_policies_see_by_are_recorded(tmp_path: Path) -> None:
    """Only these, and without any the command is what it was before."""
    keys = ("observation.images.corner2", "observation.state", "observation.images.gripperPOV")
    commands = [
        Study(SCALES["smoke"], "metaworld", tmp_path, observe=observe).demonstrations().command
        for observe in (keys, ())
    ]
    assert " --cameras corner2 gripperPOV " in f"{commands[0]} "
    assert commands[0].replace(" --cameras corner2 gripperPOV", "") == commands[1]


def test_demonstrations_that_nobody_scripted_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="pusht has no scripted expert: name demonstrations with --data"):
        reproduce(ReproduceConfig(("table-sim",), "smoke", "pusht", out=tmp_path))


def test_what_nobody_recorded_cannot_be_observed(tmp_path: Path) -> None:
    """Which is told before anything is fitted or written."""
    data = write_npz(tmp_path / "demos.npz", make_episodes())
    out = tmp_path / "out"
    config = ReproduceConfig(("table-sim",), "smoke", "pusht", out, data, observe=("observation.images.top",))
    with pytest.raises(UnknownName, match=r"observation key in .*demos\.npz .*'observation\.images\.top'"):
        reproduce(config)
    assert not out.exists()


def test_what_needs_a_failed_run_is_not_begun(tmp_path: Path) -> None:
    """Its log says why, the others are done, and the error names it; runs that fail alike share their reason."""
    study = Study(SCALES["smoke"], "metaworld", tmp_path)
    broken = Run(tmp_path, "broken", CollectConfig("metaworld", ("no-such-task",), tmp_path / "broken", episodes=1))
    alike = replace(broken, name="alike")
    needing = replace(study.demonstrations(), name="needing", needs=("broken",))
    config = ReproduceConfig(("table-sim",), jobs=1)
    with (
        pytest.raises(
            RunFailed, match=r"2 of 3 runs failed \(broken, alike: .*no-such-task.*1 that need them were not"
        ) as told,
        open_workers(config) as submit,
    ):
        perform_all([broken, alike, needing], submit, jobs=1)
    assert str(told.value).count("no-such-task") == 1
    assert "oat collect metaworld --tasks no-such-task" in broken.log.read_text()
    assert not needing.done


@pytest.fixture
def paced(tmp_path: Path) -> StepBudget:
    """Minutes instead of steps, and measured paces."""
    scale: Scale = replace(SCALES["smoke"], minutes=3.0, tokenizer_share=1 / 3)
    (tmp_path / "pace.json").write_text(json.dumps({"policies/oat": 0.1, "tokenizers/oat": 0.25, "policies/bin": 2.0}))
    return StepBudget(Study(scale, "metaworld", tmp_path))


def test_minutes_become_steps(paced: StepBudget) -> None:
    """The tokenizer has 60 s at 0.25 s a step, its policy 120 s; Bin's policy has all 180."""
    assert (paced.tokenizer_steps(OAT), paced.policy_steps(OAT), paced.policy_steps(BIN)) == (250, 1200, 100)
    assert not paced.lacks(OAT)
    assert paced.lacks(QUEST)


def test_an_ablation_takes_the_steps_of_what_it_is_compared_with(paced: StepBudget) -> None:
    for method in (with_levels((8, 6, 5)), FULL_REGISTERS):
        assert not paced.lacks(method)
        assert (paced.tokenizer_steps(method), paced.policy_steps(method)) == (250, 1200)


def test_only_what_differs_is_timed(paced: StepBudget) -> None:
    """OAT×'s policy computes as OAT's, its tokenizer does not."""
    assert paced.policy_steps(UNORDERED) == paced.policy_steps(OAT) == 1200
    assert paced.untimed([OAT, UNORDERED, UNORDERED_FULL_REGISTERS, BIN, BC]) == [UNORDERED, BC]


def test_seeds() -> None:
    study = Study(SCALES["cpu"], "metaworld", Path("R"))

    def count(method: Method, study: Study = study) -> int:
        return len(study.evaluations([method]))

    assert [count(method) for method in (OAT, DP, BC, BIN, FAST)] == [3, 3, 3, 1, 1]
    assert count(OAT, replace(study, seeds=2)) == 2


def test_a_study_that_is_cut_short_lacks_seeds_and_not_methods() -> None:
    study = Study(SCALES["cpu"], "metaworld", Path("R"), seeds=2)
    order = [(each.method, each.seed) for each in study.evaluations([OAT, BIN, DP])]
    assert order == [(OAT, 0), (BIN, 0), (DP, 0), (OAT, 1), (BIN, 1), (DP, 1)]
    usual = [(each.method, each.seed) for each in replace(study, seeds=None).evaluations([OAT, BIN])]
    assert usual == [(OAT, 0), (BIN, 0), (OAT, 1), (OAT, 2)]  # slow ones have fewer, unless they are asked for


def test_what_executes_so_many_actions_alone(tmp_path: Path) -> None:
    """As the protocol does, or as a table wants beside it; the tables name what was not run."""
    study = Study(SCALES["cpu"], "metaworld", tmp_path)
    runs = load_experiment("table-depth").evaluations(study)

    def chosen(**options: Any) -> list[EvaluationRun]:
        config = ReproduceConfig(("table-depth",), **options)
        return [run for run in runs if is_chosen(run, study, config)]

    half = chosen(execute=8)
    whole = chosen(execute=16)
    assert {run.execute for run in half} == {8}
    assert {run.execute for run in whole} == {None}
    assert len(half) + len(whole) == len(chosen()) == len(runs)
    assert not chosen(execute=8, methods=("quest",))
    with pytest.raises(InvalidOption, match="execute must be at least 1, got 0"):
        ReproduceConfig(("table-depth",), execute=0)


def test_some_methods_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "table-sim", "--scale", "smoke", "--sim", "detour", "--jobs", "1", "--out", str(tmp_path)]
    with pytest.raises(SystemExit):
        main([*words, "--methods", "bc", "oats"])
    assert "unknown method of table-sim 'oats'. Did you mean 'oat'" in capsys.readouterr().err
    main([*words, "--methods", "bc"])
    assert [path.name for path in (tmp_path / "smoke" / "detour" / "policies").iterdir()] == ["bc-seed0"]


def test_films_can_be_left_out() -> None:
    filmed = Study(SCALES["cpu"], "metaworld", Path("R"))
    runs = [study.runs([EvaluationRun(BC)], StepBudget(study))[-1] for study in (filmed, replace(filmed, films=False))]
    assert ["--videos 1" in run.command for run in runs] == [True, False]


@pytest.mark.parametrize("name", ABLATIONS)
def test_seeds_of_ablations(name: str) -> None:
    """One on a processor, as many as asked for, five as in the paper."""

    def seeds(study: Study) -> set[int]:
        whole = (BC, OAT, QUEST, UNORDERED, RVQ)
        return {each.seed for each in load_experiment(name).evaluations(study) if each.method not in whole}

    study = Study(SCALES["cpu"], "metaworld", Path("R"))
    assert seeds(study) == {0}
    assert seeds(replace(study, seeds=2)) == {0, 1}
    assert seeds(replace(study, scale=SCALES["paper"])) == {0, 1, 2, 3, 4}


def test_the_papers_scale_is_the_papers() -> None:
    paper, cpu = SCALES["paper"], SCALES["cpu"]
    sims: tuple[SimulatorName, ...] = ("libero", "robomimic", "metaworld", "robocasa")
    assert [paper.demonstrations_for(sim) for sim in sims] == [50, 200, 50, 200]
    assert [cpu.demonstrations_for(sim) for sim in sims] == [50, 200, 50, 100]
    assert [scale.seeds_of_ablations for scale in SCALES.values()] == [1, 1, 5]


def test_every_experiment_explains_itself() -> None:
    for name, entry in EXPERIMENTS.items():
        assert entry.about
        assert load_experiment(name).evaluations is not None


def test_workers_use_one_thread(tmp_path: Path) -> None:
    with open_workers(ReproduceConfig(("table-sim",), jobs=1)) as submit:
        assert submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
