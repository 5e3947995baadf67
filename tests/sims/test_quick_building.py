"""Scenes that are built sooner are the same scenes."""

from pathlib import Path
from types import ModuleType

import numpy as np
import yaml

from oat.sims.quick_building import compile_robots_once, read_yaml_in_c
from oat.sims.robosuite import import_robosuite

STYLE = """
default: &usual {xml: fixtures/sink.xml, size: [0.6, null, .5], flip: no, name: "1_0", scale: 1e-3}
marble:
  <<: *usual
  depths: [1, 2.5, 0x10, 1_000, ~, on]
"""


def test_yaml_means_the_same(tmp_path: Path) -> None:
    module = ModuleType("scenes")
    read_yaml_in_c([module])
    path = tmp_path / "style.yaml"
    path.write_text(STYLE)
    with path.open() as file:
        quick = module.yaml.safe_load(file)
    assert quick == yaml.safe_load(STYLE)
    assert quick["marble"]["xml"] == "fixtures/sink.xml"
    assert module.yaml.safe_dump is yaml.safe_dump  # the rest of the library is there
    assert yaml.safe_load is not module.yaml.safe_load  # and others go on as they were


def test_a_robot_is_compiled_once_for_each_description() -> None:
    import_robosuite()
    from robosuite.models.robots import Panda
    from robosuite.models.robots.robot_model import RobotModel

    before = Panda().get_model()
    own = RobotModel.get_model
    compile_robots_once()
    try:
        one, two = Panda(), Panda()
        assert one.get_model() is two.get_model()
        np.testing.assert_array_equal(one.get_model().body_mass, before.body_mass)
        two.set_joint_attribute("damping", np.full(7, 5.0))
        assert two.get_model() is not one.get_model()
        np.testing.assert_array_equal(two.get_model().dof_damping, np.full(7, 5.0))
    finally:
        RobotModel.get_model = own
