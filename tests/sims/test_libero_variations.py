"""libero_spatial, libero_object, libero_goal: their own definitions and fixed states, with meshes of other things."""

import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from oat.data.episodes import STATE
from oat.experiments.study.scales import SCALES
from oat.experiments.study.study import Study
from oat.sims import load_simulator
from oat.sims.libero import ASSETS_VARIABLE, Libero
from oat.sims.libero_variations import LiberoGoal, LiberoObject, LiberoSpatial

SUITES = (LiberoSpatial, LiberoObject, LiberoGoal)
ROBOT = 9
# What LIBERO's own files would be, and what is taken for them here.
_SUBSTITUTES = {
    "scenes/libero_tabletop_base_style.xml": "scenes/libero_kitchen_tabletop_base_style.xml",
    "scenes/libero_floor_base_style.xml": "scenes/libero_living_room_tabletop_base_style.xml",
    "articulated_objects/wooden_cabinet.xml": "articulated_objects/white_cabinet.xml",
    "stable_hope_objects/salad_dressing": "stable_hope_objects/ketchup",
    "stable_hope_objects/bbq_sauce": "stable_hope_objects/ketchup",
    "stable_hope_objects/cookies": "stable_hope_objects/butter",
    "stable_scanned_objects/glazed_rim_porcelain_ramekin": "stable_scanned_objects/akita_black_bowl",
    "turbosquid_objects/wine_bottle": "turbosquid_objects/moka_pot",
    "turbosquid_objects/wine_rack": "turbosquid_objects/desk_caddy",
}


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The assets that are here, and beside them copies of some under the names of those that may be missing."""
    if ASSETS_VARIABLE not in os.environ:
        pytest.skip(f"{ASSETS_VARIABLE} is not set")
    folder = tmp_path_factory.mktemp("assets") / "assets"
    shutil.copytree(os.environ[ASSETS_VARIABLE], folder, copy_function=os.symlink)
    folder.chmod(0o755)
    for wanted, other in _SUBSTITUTES.items():
        place, source = folder / wanted, folder / other
        if place.exists():
            continue
        place.parent.chmod(0o755)
        if source.is_dir():
            place.mkdir()
            for file in source.iterdir():
                (place / file.name.replace(source.name + ".", place.name + ".")).symlink_to(file.resolve())
        else:
            # A file, and not a link: what it names lies beside it.
            scene = ElementTree.parse(source)
            _clear_floor(scene.getroot())
            scene.write(place)
    return folder


def _clear_floor(scene: ElementTree.Element) -> None:
    """Take the living room's table away, in whose place libero_object's robot and things stand."""
    world = scene.find("worldbody")
    assert world is not None
    for table in scene.findall("worldbody/body[@name='living_room_table']"):
        world.remove(table)


@pytest.mark.parametrize("simulator", SUITES)
def test_there_are_ten_tasks_each_with_an_instruction_of_its_own(simulator: type[Libero]) -> None:
    suite = load_simulator(simulator.name)
    assert type(suite) is simulator
    assert len(suite.tasks) == len({suite.instruction(task) for task in suite.tasks}) == 10
    study, long = (Study(SCALES["cpu"], name, Path("anywhere")) for name in (simulator.name, "libero"))
    assert (study.tasks, study.minutes, study.episodes) == (suite.tasks, long.minutes, long.episodes)


@pytest.mark.parametrize("simulator", SUITES)
def test_tasks_begin_at_their_own_states_and_can_be_acted_in(
    simulator: type[Libero], assets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ASSETS_VARIABLE, str(assets))
    suite = simulator()
    for task in suite.tasks[::9]:
        env = suite.make(task)
        first = env.reset(0)[STATE]
        known = ROBOT + sum(map(len, env._objects()))
        assert known <= len(first)
        assert not first[known:].any()
        assert first[:known].any()
        assert np.abs(env.reset(1)[STATE] - first).max() > 1e-3
        np.testing.assert_array_equal(env.reset(0)[STATE], first)
        up = np.array([0, 0, 1, 0, 0, 0, 0], np.float32)
        steps = [env.step(up) for _ in range(5)]
        assert steps[-1].observation[STATE][2] > first[2] + 0.01
