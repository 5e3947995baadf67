"""Stage 4 of the pipeline: the benchmarks, one per file; each brings its tasks, its demonstrators and its protocol."""

from importlib import import_module

from oat.errors import unknown_name
from oat.interfaces import Simulator

SIMULATORS: dict[str, str | type[Simulator]] = {
    "metaworld": "oat.sims.metaworld:MetaWorld",
    "robomimic": "oat.sims.robomimic:RoboMimic",
    "pusht": "oat.sims.pusht:PushT",
    "libero": "oat.sims.libero:Libero",
    "robocasa": "oat.sims.robocasa:RoboCasa",
    "detour": "oat.sims.detour:Detour",
}
"""By name the class of every benchmark, or MODULE:CLASS, so that a module is imported only when it is needed."""


def check_simulator(name: str) -> None:
    """Raise `UnknownName` for a simulator that is not registered, naming similar ones."""
    if name not in SIMULATORS:
        raise unknown_name("simulator", name, SIMULATORS)


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
