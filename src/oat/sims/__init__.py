"""Stage 4 of the pipeline: the benchmarks, one per file; each brings its tasks, its demonstrators and its protocol."""

from importlib import import_module
from typing import Protocol, runtime_checkable

from oat.errors import unknown_name
from oat.interfaces import Simulator
from oat.protocol import Protocol as EvaluationProtocol


@runtime_checkable
class SimulatorClass(Protocol):
    """Describe the class of a simulator: its protocol is known before one is made."""

    protocol: EvaluationProtocol

    def __call__(self) -> Simulator:
        """Make the simulator; some import their packages here and say what is missing."""
        ...


SIMULATORS: dict[str, str | SimulatorClass] = {
    "metaworld": "oat.sims.metaworld:MetaWorld",
    "robomimic": "oat.sims.robomimic:RoboMimic",
    "pusht": "oat.sims.pusht:PushT",
    "libero": "oat.sims.libero:Libero",
    "robocasa": "oat.sims.robocasa:RoboCasa",
}
"""By name the class of every benchmark, or where it is, so that a module is imported only when it is needed."""


def find_simulator(name: str) -> SimulatorClass:
    """Return the class of the simulator by that name, whether or not its packages are installed."""
    if name not in SIMULATORS:
        raise unknown_name("simulator", name, SIMULATORS)
    found = SIMULATORS[name]
    if not isinstance(found, str):
        return found
    module, _, attribute = found.partition(":")
    simulator: SimulatorClass = getattr(import_module(module), attribute)
    return simulator


def load_simulator(name: str) -> Simulator:
    """Return the simulator by that name; its packages are imported only now."""
    return find_simulator(name)()
