"""Scales of a study: to see that it runs, for an afternoon on a laptop, or as in the paper."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from oat.experiments.config import ScaleName
from oat.experiments.study.methods import Method
from oat.sims.config import SimulatorName


@dataclass(frozen=True)
class Scale:
    """Hold the sizes of a study; a training is limited by minutes, which are equal for all methods, or by steps."""

    name: ScaleName
    preset: Literal["tiny", "cpu", "paper"]
    demonstrations: int
    """Demonstrations per task, where a scripted expert gives them."""
    episodes: int
    """Episodes per task, training seed and number of tokens."""
    seeds: int
    seeds_of_slow: int
    seeds_of_ablations: int
    """Training seeds of variants that only tables of ablations need."""
    chunks: int
    """Held-out chunks that figures look at."""
    timings: int
    """Chunks that each method is timed with, where milliseconds are measured."""
    videos: int = 1
    """Episodes that are filmed, of every task and number of tokens, with the first training seed."""
    tasks: int | None = None
    """Number of the benchmark's tasks, the first ones; None for all."""
    minutes: float | None = None
    """Minutes of training on one thread, tokenizer and policy together; None leaves the preset's or scale's steps."""
    tokenizer_share: float = 1 / 3
    """Part of those minutes that a learned tokenizer takes; on MetaWorld 4 + 8 of 12 did better than 7 + 5."""
    steps: int | None = None
    demonstrations_in: Mapping[SimulatorName, int] = field(default_factory=dict)
    """Demonstrations per task of benchmarks that have another number of them."""
    minutes_in: Mapping[SimulatorName, float] = field(default_factory=dict)
    """Minutes of training in benchmarks that are learned in fewer, or need more."""
    episodes_in: Mapping[SimulatorName, int] = field(default_factory=dict)
    """Episodes per task of benchmarks that step slowly, or have many tasks."""
    head_options: Mapping[str, Any] = field(default_factory=dict)
    """Departures from the usual training of a stopping head."""

    def minutes_for(self, sim: SimulatorName) -> float | None:
        """Return the minutes of training that every method has in a benchmark, if minutes limit it."""
        return self.minutes_in.get(sim, self.minutes)

    def episodes_for(self, sim: SimulatorName) -> int:
        """Return how many episodes of each task a policy has, for each training seed and number of tokens."""
        return self.episodes_in.get(sim, self.episodes)

    def demonstrations_for(self, sim: SimulatorName) -> int:
        """Return how many demonstrations of each task a benchmark has."""
        return self.demonstrations_in.get(sim, self.demonstrations)

    def seeds_for(self, method: Method) -> int:
        """Return how many times a method is trained."""
        return self.seeds_of_slow if method.slow else self.seeds


_LIBERO = ("libero", "libero_90", "libero_spatial", "libero_object", "libero_goal")
# Where simulators step slowly, trainings take half the time and episodes are fewer, for all methods alike.
# Of 50 detours a regression learns by heart which start went which way, and then arrives in most episodes.
SCALES: dict[ScaleName, Scale] = {
    "smoke": Scale(
        "smoke",
        "tiny",
        demonstrations=3,
        episodes=2,
        seeds=1,
        seeds_of_slow=1,
        seeds_of_ablations=1,
        chunks=32,
        timings=10,
        videos=0,
        tasks=1,
        steps=20,
        head_options={"windows": 64, "steps": 50, "share": 0.7},
    ),
    "cpu": Scale(
        "cpu",
        "cpu",
        demonstrations=50,
        episodes=50,
        seeds=3,
        seeds_of_slow=1,
        seeds_of_ablations=1,
        chunks=256,
        timings=50,
        minutes=12,
        demonstrations_in={"detour": 400, "robomimic": 200, "robocasa": 100},
        minutes_in={"detour": 2, "robomimic": 6, "robocasa": 6, **dict.fromkeys(_LIBERO, 6)},
        episodes_in={"robomimic": 25, "robocasa": 10, **dict.fromkeys(_LIBERO, 5)},
    ),
    "paper": Scale(
        "paper",
        "paper",
        demonstrations=50,
        episodes=50,
        seeds=5,
        seeds_of_slow=5,
        seeds_of_ablations=5,
        chunks=1024,
        timings=100,
        demonstrations_in={"robomimic": 200, "robocasa": 200, "detour": 400},
    ),
}
