"""libero_90: short tasks by LIBERO's names, many of them in the scenes of the ten long ones, with the same scripts."""

import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from oat.data.episodes import STATE, open_dataset
from oat.errors import SimulatorError, UnknownName
from oat.experiments.study.scales import SCALES
from oat.experiments.study.study import Study
from oat.interfaces import ExpertConfig
from oat.sims import load_simulator
from oat.sims.collect import attempt_seed
from oat.sims.libero import ASSETS_VARIABLE, Libero
from oat.sims.libero_90 import Libero90
from oat.sims.libero_experts import check_means
from oat.sims.replay import RebuildsEnvironments
from tests.test_cli import oat

STOVE_ON = "KITCHEN_SCENE3_turn_on_the_stove"
STOVE_OFF = "KITCHEN_SCENE8_turn_off_the_stove"
BOOK = "STUDY_SCENE1_pick_up_the_book_and_place_it_in_the_left_compartment_of_the_caddy"
RACK = "KITCHEN_SCENE4_put_the_wine_bottle_on_the_wine_rack"

needs_assets = pytest.mark.skipif(ASSETS_VARIABLE not in os.environ, reason=f"{ASSETS_VARIABLE} is not set")


def test_tasks_have_liberos_names_and_instructions_repeat() -> None:
    simulator = load_simulator("libero_90")
    assert len(simulator.tasks) == 90
    assert simulator.instruction(STOVE_ON) == "turn on the stove"
    told = [simulator.instruction(task) for task in simulator.tasks]
    assert len(set(told)) == 74
    assert simulator.conditions(STOVE_ON, "selection") == Libero().conditions("", "selection")
    with pytest.raises(UnknownName, match="KITCHEN_SCENE3_turn_on_the_stove"):
        simulator.make("KITCHEN_SCENE3_turn_on_a_stove")


def test_studies_act_in_ten_of_its_tasks() -> None:
    study = Study(SCALES["cpu"], "libero_90", Path("anywhere"))
    assert set(study.tasks) <= set(Libero90().tasks)
    assert len(set(study.tasks)) == 10
    assert study.minutes == Study(SCALES["cpu"], "libero", Path("anywhere")).minutes


@needs_assets
@pytest.mark.parametrize("task", [STOVE_OFF, BOOK])
def test_a_script_demonstrates_a_single_step(task: str) -> None:
    shown = Libero90().expert(task, ExpertConfig()).demonstrate(attempt_seed(0, task, 0))
    assert shown.success
    assert len(shown.actions) < Libero90.protocol.max_steps / 2
    assert shown.observations[STATE].shape == (len(shown.actions), 65)


def test_goals_that_no_script_reaches_are_told() -> None:
    check_means(STOVE_OFF, [["turnoff", "flat_stove_1"]])
    with pytest.raises(
        SimulatorError, match=rf"^no script demonstrates '{RACK}': none reaches its goal \(on wine_bottle_1 wine_rack_1"
    ):
        check_means(RACK, [["turnon", "flat_stove_1"], ["on", "wine_bottle_1", "wine_rack_1_top_region"]])
    with pytest.raises(SimulatorError, match=r"\(close white_cabinet_1_top_region\); there are scripts for turnon"):
        check_means(RACK, [["close", "white_cabinet_1_top_region"]])


@pytest.mark.parametrize(
    ("definition", "owner"),
    [
        (f"somewhere/bddl_files/libero_90/{STOVE_ON}.bddl", "libero_90"),
        ("somewhere/bddl_files/libero_10/KITCHEN_SCENE3_turn_on_the_stove_and_put_the_moka_pot_on_it.bddl", "libero"),
        ("somewhere/bddl_files/libero_goal/turn_on_the_stove.bddl", "libero_goal"),
        ("somewhere/bddl_files/libero_object/pick_up_the_milk_and_place_it_in_the_basket.bddl", "libero_object"),
        ("somewhere/bddl_files/libero_spatial/any.bddl", "libero_spatial"),
        (None, "libero"),
    ],
)
def test_a_file_belongs_to_the_suite_that_its_definition_is_of(definition: str | None, owner: str) -> None:
    attributes: dict[str, Any] = {"problem_info": {"language_instruction": "turn on the stove"}}
    if definition is not None:
        attributes["bddl_file_name"] = definition
    for name in ("libero", "libero_90", "libero_spatial", "libero_object", "libero_goal"):
        simulator: object = load_simulator(name)
        assert isinstance(simulator, RebuildsEnvironments)
        assert simulator.recognizes(attributes) is (name == owner)


@needs_assets
def test_the_environment_of_a_file_is_that_of_its_scene(tmp_path: Path) -> None:
    """Which the instruction alone would not tell: it is given in several scenes."""
    with h5py.File(tmp_path / "demo.hdf5", "w") as file:
        data = file.create_group("data")
        data.attrs["problem_info"] = json.dumps({"language_instruction": "turn on the stove"})
        data.attrs["bddl_file_name"] = f"somewhere/libero_90/{STOVE_ON}.bddl"
    env = Libero90.environment_of(tmp_path / "demo.hdf5")
    assert env.reset(0)[STATE].shape == (65,)
    assert set(env.env.objects_dict) == {"chefmate_8_frypan_1", "moka_pot_1"}
    np.testing.assert_array_equal(env.reset(0)[STATE], Libero90().make(STOVE_ON).reset(0)[STATE])


@needs_assets
def test_one_command_collects_a_short_task(tmp_path: Path) -> None:
    done = oat(
        "collect", "libero_90", "--tasks", STOVE_ON, "--episodes", "1", "--workers", "1", "--out", tmp_path / "demos"
    )
    assert done.returncode == 0, done.stderr
    assert open_dataset(tmp_path / "demos").tasks == ("turn on the stove",)
