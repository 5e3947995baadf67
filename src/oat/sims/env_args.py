"""Translate robomimic's `env_args` into what robosuite 1.5 builds the same environment from, and check LIBERO's.

Files exist of several generations of robosuite: 1.2 and 1.3 have another name for the controller's damping, up to 1.4
the arm's controller is described alone, 1.5 nests it in one for the whole body and has light physics. What means the
same is translated; anything else is refused with the reason, because an environment that behaves otherwise is worse
than none. How exactly 1.5 repeats what was recorded in 1.4 is measured by benchmarks/robosuite_versions.py.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any

from oat.data.hdf5_demos import ROBOMIMIC_TASKS
from oat.errors import UnsupportedVersion, unknown_name
from oat.sims.robosuite import ARM, BUILD_OPTIONS, GENERATION, arm_controller, import_robosuite

_ROBOSUITE_TYPE = 1  # robomimic's number for it
_WITHOUT_MEANING = ("camera_", "render", "horizon", "lang", *BUILD_OPTIONS)
"""Beginnings of the options that change what is shown or when an episode is cut off, not what an action does."""
_GENERATIONS = re.compile(r"1\.[2-5](\.|$)")  # whose files can be translated
_RENAMED = {"damping": "damping_ratio", "damping_limits": "damping_ratio_limits"}


def translate_env_args(env_args: Mapping[str, Any], source: str) -> tuple[str, dict[str, Any]]:
    """Return the environment's name and its arguments; `source` is the file that error messages name."""
    with _explained(env_args, source):
        return _translate(env_args)


def check_usual_arm(env_args: Mapping[str, Any], frequency: int, source: str) -> None:
    """Raise `UnsupportedVersion` if a file's actions would do something else to `arm_controller`'s arm.

    What a file does not tell is taken to be usual.
    """
    given = env_args.get("env_kwargs")
    options = given if isinstance(given, dict) else {}
    with _explained(env_args, source):
        _check_generation(env_args)
        _check_robot(options.get("robots", "Panda"))
        if (told := options.get("control_freq", frequency)) != frequency:
            raise _Refused(f"its actions are {told} a second, not {frequency}")
        robosuite = import_robosuite()
        usual = arm_controller(robosuite)["body_parts"][ARM]
        given_controller = options.get("controller_configs")
        theirs = {} if given_controller is None else _controller(robosuite, given_controller)
        for option, value in theirs.items():
            if usual[option] != value:
                raise _Refused(f"{option} of its controller is {value}, not {usual[option]}")


@contextmanager
def _explained(env_args: Mapping[str, Any], source: str) -> Iterator[None]:
    """Raise `UnsupportedVersion` with the file, its version and the reason where an environment is refused."""
    try:
        yield
    except _Refused as refused:
        version = f"robosuite {env_args.get('env_version', 'of an early version')}"
        raise UnsupportedVersion(
            f"{source}: its environment ({version}) cannot be built in robosuite {GENERATION}: {refused}; "
            "`oat convert` without --render takes over what the file holds"
        ) from None


class _Refused(Exception):
    """Say why an environment cannot be built here; `_explained` adds the file and the version."""


def _check_generation(env_args: Mapping[str, Any]) -> None:
    """Refuse files of other generations than are known here; the earliest files do not tell theirs."""
    version = env_args.get("env_version")
    if version is not None and not _GENERATIONS.match(str(version)):
        raise _Refused("files of robosuite 1.2 to 1.5 can be")


def _check_robot(robots: Any) -> None:
    if robots not in ("Panda", ["Panda"]):
        raise _Refused(f"it is for one Panda, not for {robots}")


def _translate(env_args: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and arguments, or raise `_Refused` for anything that robosuite 1.5 would do differently."""
    _check_generation(env_args)
    robosuite = import_robosuite()
    name = env_args.get("env_name")
    given = env_args.get("env_kwargs")
    if not isinstance(name, str) or not isinstance(given, dict):
        raise _Refused("env_args lacks env_name or env_kwargs")
    if env_args.get("type", _ROBOSUITE_TYPE) != _ROBOSUITE_TYPE:
        raise _Refused(f"it is not a robosuite environment (type {env_args['type']})")
    if name not in ROBOMIMIC_TASKS:
        raise unknown_name("environment of RoboMimic", name, ROBOMIMIC_TASKS)
    options = {key: value for key, value in given.items() if not key.startswith(_WITHOUT_MEANING)}
    if "mount_types" in options:
        options["base_types"] = options.pop("mount_types")
    for option in ("base_types", "env_configuration", "seed"):
        if options.get(option) in (None, "default"):
            options.pop(option, None)
    _check_robot(options.get("robots"))
    # Environments pass options on to their base classes, so an option may be a parameter of any of these.
    bases = robosuite.environments.REGISTERED_ENVS[name].__mro__
    allowed = {parameter for base in bases for parameter in signature(base.__init__).parameters}
    if unknown := sorted(set(options) - allowed):
        raise _Refused(f"it has no option {', '.join(unknown)}")
    given_controller = options.get("controller_configs")
    nested = isinstance(given_controller, dict) and "body_parts" in given_controller
    options.setdefault("lite_physics", nested)  # older versions had none, and 1.5 has them unless it is told otherwise
    arm = _controller(robosuite, given_controller)
    options["controller_configs"] = {"type": "BASIC", "body_parts": {ARM: arm | {"gripper": {"type": "GRIP"}}}}
    return name, options


def _controller(robosuite: Any, given: Any) -> dict[str, Any]:
    """Return the options of the arm's controller under the names of robosuite 1.5."""
    if not isinstance(given, dict):
        raise _Refused(f"controller_configs must describe one controller, got {given!r}")
    config = dict(given)
    if "body_parts" in config:
        config = _arm(config)
    for old, new in _RENAMED.items():
        if old in config:
            config.setdefault(new, config.pop(old))
            if new == "damping_ratio" and config[new] != 1:
                raise _Refused(f"{old} = {config[new]} was used by some versions and ignored by others")
    if not config.pop("control_delta", True) or config.setdefault("input_type", "delta") != "delta":
        raise _Refused("its actions are poses to go to, and RoboMimic's are motions")
    config.setdefault("input_ref_frame", "world")
    if config.get("type") not in robosuite.ALL_PART_CONTROLLERS:
        known = ", ".join(sorted(robosuite.ALL_PART_CONTROLLERS))
        raise _Refused(f"controller {config.get('type')!r} is none of {known}")
    defaults = robosuite.load_part_controller_config(default_controller=config["type"])
    if unknown := sorted(set(config) - set(defaults)):
        raise _Refused(f"{config['type']} has no option {', '.join(unknown)}")
    return config


def _arm(composite: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arm's part of a controller for the whole body, as robosuite 1.5 has it; a Panda has no other parts."""
    parts = composite["body_parts"].get("arms", composite["body_parts"])
    if composite.get("type") != "BASIC" or "right" not in parts:
        raise _Refused(f"a {composite.get('type')} controller of {', '.join(parts)} is not that of one arm")
    arm = dict(parts["right"])
    if arm.pop("gripper", {"type": "GRIP"}).get("type") != "GRIP":
        raise _Refused("its gripper is not commanded to open or close")
    if arm.pop("goal_update_mode", "achieved") != "achieved":
        raise _Refused("its actions add to the last goal, not to where the hand is")
    frame = arm.setdefault("input_ref_frame", "base")
    if frame not in ("world", "base"):
        raise _Refused(f"its actions are in the frame of the {frame}")
    return arm
