"""Stage 4 of the pipeline: the benchmarks, one per file; each brings its tasks and its demonstrators."""

from collections.abc import Callable

from oat.errors import unknown_name
from oat.interfaces import Simulator


def _metaworld() -> Simulator:
    from oat.sims.metaworld import MetaWorld

    return MetaWorld()


def _robomimic() -> Simulator:
    from oat.sims.robomimic import RoboMimic

    return RoboMimic()


def _pusht() -> Simulator:
    from oat.sims.pusht import PushT

    return PushT()


def _libero() -> Simulator:
    from oat.sims.libero import Libero

    return Libero()


def _robocasa() -> Simulator:
    from oat.sims.robocasa import RoboCasa

    return RoboCasa()


SIMULATORS: dict[str, Callable[[], Simulator]] = {
    "metaworld": _metaworld,
    "robomimic": _robomimic,
    "pusht": _pusht,
    "libero": _libero,
    "robocasa": _robocasa,
}


def load_simulator(name: str) -> Simulator:
    """The simulator by that name; its packages are imported only now."""
    if name not in SIMULATORS:
        raise unknown_name("simulator", name, SIMULATORS)
    return SIMULATORS[name]()
