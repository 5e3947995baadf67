"""Configure what to collect; importing this is cheap, so that the command line can show its help at once."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from oat.data.episodes import CameraStorage, WhenExists
from oat.errors import InvalidOption
from oat.interfaces import ExpertConfig
from oat.sims import SIMULATORS, choose_view

SimulatorName = Annotated[str, tyro.conf.arg(metavar="{" + ",".join(SIMULATORS) + "}")]
"""The name of a benchmark in `oat.sims.SIMULATORS`."""


@dataclass(frozen=True)
class CollectConfig:
    """Configure which demonstrations to collect, how many, and where to."""

    simulator: tyro.conf.Positional[SimulatorName]
    """Which benchmark."""
    tasks: tuple[str, ...]
    """Task names, such as box-close coffee-pull; "all" for every task the simulator has."""
    out: Path
    """The directory to write; it appears when it is complete."""
    episodes: int = 50
    """Successful episodes per task."""
    seed: int = 0
    """Determines all initial conditions and noise."""
    expert: Annotated[ExpertConfig, tyro.conf.arg(name="")] = field(default_factory=ExpertConfig)
    camera_storage: CameraStorage = "video"
    """video stores H.264; image stores lossless PNG."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes that collect at the same time."""
    exists: WhenExists = "refuse"
    """What to do when OUT exists."""
    view: str | None = None
    """How others show the benchmark to policies, such as lerobot for metaworld; by default as the benchmark does."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "simulator", choose_view(self.simulator, self.view))
        if self.episodes < 1 or self.workers < 1:
            raise InvalidOption(f"episodes and workers must be at least 1, got {self.episodes} and {self.workers}")
        if len(set(self.tasks)) != len(self.tasks) or not self.tasks:
            raise InvalidOption(f"tasks must be distinct and at least one, got {', '.join(self.tasks)}")
