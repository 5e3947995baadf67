"""Build the same scenes sooner: what robosuite and RoboCasa do over again at every reset is done once, or quicker."""

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

from oat.io.extras import import_extra


def compile_robots_once() -> None:
    """Keep the model of a robot alone, which robosuite compiles with every scene, as long as its XML is the same."""
    robots = import_extra("robosuite.models.robots.robot_model", "robosuite")
    from_xml_string = import_extra("mujoco", "robosuite").MjModel.from_xml_string
    compile_xml = lru_cache(maxsize=4)(from_xml_string)

    def get_model(robot: Any, mode: str = "mujoco") -> Any:
        return compile_xml(ElementTree.tostring(robot.root, encoding="unicode"))

    robots.RobotModel.get_model = get_model


def read_yaml_in_c(modules: Sequence[ModuleType]) -> None:
    """Let these modules read YAML by libyaml, where that is installed: a kitchen reads tens of thousands of values."""
    yaml = import_extra("yaml", "robocasa")
    quick = ModuleType("yaml")
    vars(quick).update(vars(yaml))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    vars(quick)["safe_load"] = lambda stream: yaml.load(stream, loader)
    for module in modules:
        vars(module)["yaml"] = quick
