"""Rebuild the kitchens of people's demonstrations from what RoboCasa's HDF5 files say about them.

A file says in `env_args` what its task and its robot are, and every demonstration in it in `ep_meta` which layout and
style its kitchen has and which objects are in it, and in `model_file` where all that stands. A kitchen is built from
the assets at hand, and then its parts are put where they stood: no model of a file is compiled. What would behave or
look otherwise is refused with the reason.
"""

import json
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import numpy as np

from oat.errors import SimulatorError, UnsupportedVersion, unknown_name
from oat.sims.robocasa_assets import ASSETS_VARIABLE, DOWNLOAD_COMMAND, Assets, describe_numbers
from oat.sims.robosuite import GENERATION, import_robosuite

_CONTROL_FREQUENCY = 20
_ROBOTS = ("PandaOmron", "PandaMobile")  # the second is what RoboCasa called the first before
_OBJECTS = "/objects/"  # what is behind it in the path of an object's model is the same on every machine
_TOLERANCE = 1e-4  # scenes are stored with few digits


def check_env_args(env_args: Mapping[str, Any], robot: str, tasks: Mapping[str, Any], source: str) -> str:
    """Return the task of a file, or raise an error if its actions would mean something else here."""
    version = str(env_args.get("env_version", "of an early version"))
    name = str(env_args.get("env_name"))
    given = env_args.get("env_kwargs")
    if not version.startswith(f"{GENERATION}."):
        raise UnsupportedVersion(
            f"{source}: recorded in robosuite {version}, and only kitchens of {GENERATION} are rendered: `oat convert` "
            "without --render takes over what it holds"
        )
    if name not in tasks:
        raise unknown_name("robocasa task", name, tasks)
    if not isinstance(given, dict) or (difference := _difference(given, robot)) is not None:
        found = "env_kwargs is missing" if not isinstance(given, dict) else difference
        raise UnsupportedVersion(f"{source}: its environment cannot be built as RoboCasa's usual one: {found}")
    return name


def _difference(given: Mapping[str, Any], robot: str) -> str | None:
    """Return in what an environment's options differ from the usual ones so that actions mean something else."""
    robots = given.get("robots")
    if robots not in (*_ROBOTS, *([name] for name in _ROBOTS)):
        return f"it is for one {robot}, not for {robots}"
    if (frequency := given.get("control_freq", _CONTROL_FREQUENCY)) != _CONTROL_FREQUENCY:
        return f"its actions are {frequency} a second, not {_CONTROL_FREQUENCY}"
    usual = import_robosuite().load_composite_controller_config(robot=robot)
    controller = given.get("controller_configs")
    if controller is None:  # then robosuite takes the usual one
        return None
    if not isinstance(controller, dict) or controller.get("type") != usual["type"]:
        return f"its controller is not a {usual['type']} one"
    mine = _flatten(usual["body_parts"])
    theirs = _flatten(controller.get("body_parts", {}))
    for key in mine.keys() & theirs.keys():
        if mine[key] != theirs[key]:
            return f"{key} of its controller is {theirs[key]}, not {mine[key]}"
    return None


def _flatten(options: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested options by names such as right.gripper.type; some versions put arms into a group of their own."""
    if not isinstance(options, Mapping):
        return {prefix: options}
    flat = {}
    for key, value in options.items():
        inner = prefix if key == "arms" else f"{prefix}.{key}".lstrip(".")
        flat.update(_flatten(value, inner))
    return flat


def read_kitchen(text: str, assets: Assets) -> dict[str, Any]:
    """Return the kitchen that a demonstration's `ep_meta` describes; what the assets lack is an error."""
    try:
        kitchen = json.loads(text)
        models = [cfg["info"]["mjcf_path"].replace("\\", "/") for cfg in kitchen["object_cfgs"]]
        chosen = {kind: kitchen[f"{kind}_id"] for kind in ("layout", "style")}
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise SimulatorError(f"ep_meta does not describe a kitchen ({type(error).__name__}: {error})") from error
    if kitchen.get("gen_textures"):
        raise SimulatorError("its kitchen has generated textures, which are not rendered here")
    for kind, number in chosen.items():
        there = assets.numbers(kind)
        if number not in there:
            raise _lacking(assets, f"kitchen {kind} {number} (there: {describe_numbers(there)})")
    for model in models:
        # RoboCasa would take a path without `objects` as it is, which must not lead out of the assets.
        place = model.rpartition(_OBJECTS)[2]
        if _OBJECTS not in model or ".." in place or not (assets.folder / "objects" / place).is_file():
            raise _lacking(assets, f"objects/{place}")
    return dict(kitchen)


def _lacking(assets: Assets, what: str) -> SimulatorError:
    """Return the error for assets that a demonstration needs and that are not there."""
    return SimulatorError(
        f"it needs {what}, which RoboCasa's assets at {assets.folder} lack: fetch them with `{DOWNLOAD_COMMAND}`, "
        f"or let {ASSETS_VARIABLE} name a folder that has them"
    )


def place_bodies(model: Any, scene: str) -> None:
    """Put everything in a MuJoCo model where it stands in a stored scene, which must have the same parts."""
    try:
        stored = ElementTree.fromstring(scene)
    except ElementTree.ParseError as error:
        raise SimulatorError(f"model_file is not XML ({error})") from error
    bodies = {body.get("name"): body for body in stored.iter("body")}
    here = {model.body(number).name for number in range(1, model.nbody)}  # 0 is the world
    if different := sorted(here ^ {name for name in bodies if name is not None}):
        raise SimulatorError(
            f"it was given in other kitchens than these assets and packages build: {different[0]} and "
            f"{len(different) - 1} more parts are only in one of them"
        )
    _check_sizes(model, stored)
    for name in here:
        body = model.body(name)
        body.pos[:] = _numbers(bodies[name].get("pos", "0 0 0"))
        quaternion = _numbers(bodies[name].get("quat", "1 0 0 0"))
        body.quat[:] = quaternion / np.linalg.norm(quaternion)


def _check_sizes(model: Any, stored: ElementTree.Element) -> None:
    """Raise an error unless all boxes and the like are as large as in a stored scene."""
    for geom in stored.iter("geom"):
        name = geom.get("name")
        size = geom.get("size")
        if name is None or size is None or geom.get("type") == "mesh":
            continue
        numbers = _numbers(size)
        try:
            found = model.geom(name).size[: len(numbers)]
        except KeyError:
            found = np.zeros(0)
        if len(found) != len(numbers) or not np.allclose(found, numbers, rtol=_TOLERANCE, atol=_TOLERANCE):
            raise SimulatorError(
                f"it was given in other kitchens than these assets and packages build: {name} measures {size} there"
            )


def _numbers(text: str) -> np.ndarray:
    """Return the numbers of an attribute."""
    return np.array(text.split(), np.float64)
