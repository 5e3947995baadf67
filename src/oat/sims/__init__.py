"""Stage 4 of the pipeline: the benchmarks, one per file; each brings its tasks, its demonstrators and its protocol."""

from importlib import import_module

from oat.errors import unknown_name
from oat.interfaces import Simulator

SIMULATORS: dict[str, str | type[Simulator]] = {
    "metaworld": "oat.sims.metaworld:MetaWorld",
    "metaworld-lerobot": "oat.sims.metaworld_lerobot:LeRobotMetaWorld",
    "robomimic": "oat.sims.robomimic:RoboMimic",
    "pusht": "oat.sims.pusht:PushT",
    "libero": "oat.sims.libero:Libero",
    "libero_90": "oat.sims.libero_90:Libero90",
    "libero_spatial": "oat.sims.libero_variations:LiberoSpatial",
    "libero_object": "oat.sims.libero_variations:LiberoObject",
    "libero_goal": "oat.sims.libero_variations:LiberoGoal",
    "robocasa": "oat.sims.robocasa:RoboCasa",
    "detour": "oat.sims.detour:Detour",
}
"""By name the class of every benchmark, or MODULE:CLASS, so that a module is imported only when it is needed."""
STARTS_VARIABLE = "OAT_STARTS_DIR"
"""Names a folder whose stored starts come before those in the cache; what is used of the latter is copied to it."""


def check_simulator(name: str) -> None:
    """Raise `UnknownName` for a simulator that is not registered, naming similar ones."""
    if name not in SIMULATORS:
        raise unknown_name("simulator", name, SIMULATORS)


def choose_view(name: str, view: str | None) -> str:
    """Return the name of the simulator that shows a benchmark in a view; None is the benchmark's own."""
    check_simulator(name)
    # A view that is chosen already is part of the name, so that a configuration may be copied.
    if view is None or name.endswith(f"-{view}"):
        return name
    views = [other.removeprefix(f"{name}-") for other in SIMULATORS if other.startswith(f"{name}-")]
    if view not in views:
        raise unknown_name(f"view of {name}", view, views)
    return f"{name}-{view}"


def find_simulator(name: str) -> type[Simulator]:
    """Return the class of the simulator by that name, whether or not its packages are installed."""
    check_simulator(name)
    found = SIMULATORS[name]
    if not isinstance(found, str):
        return found
    module, _, attribute = found.partition(":")
    simulator: type[Simulator] = getattr(import_module(module), attribute)
    return simulator


def load_simulator(name: str) -> Simulator:
    """Return the simulator by that name; its packages are imported only now."""
    return find_simulator(name)()
