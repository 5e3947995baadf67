"""Configure which of the paper's experiments to run, and how large; importing this imports no torch."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from oat.errors import InvalidOption, unknown_name
from oat.evaluation.config import DecodingName
from oat.experiments.catalogue import EXPERIMENTS
from oat.sims import check_simulator
from oat.sims.config import SimulatorName

ScaleName = Literal["smoke", "cpu", "paper"]
_CHOICES = "; ".join(f"{name}: {entry.about}" for name, entry in EXPERIMENTS.items())


@dataclass(frozen=True)
class ReproduceConfig:
    """Choose tables and figures of the paper, and how and where to make them."""

    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="NAME [NAME ...]", help=f"Which tables and figures. {_CHOICES}."),
    ]
    scale: ScaleName = "cpu"
    """smoke only shows that everything runs; cpu gives every method the same minutes; paper is the paper's."""
    sim: SimulatorName = "metaworld"
    """The benchmark that is acted in."""
    out: Path = Path("out/reproduce")
    """Everything goes to OUT/SCALE/SIM, or SIM-KEYS with --observe; what is there already is not made again."""
    data: Path | None = None
    """Demonstrations, where they cannot be collected from a scripted expert, or to use others."""
    observe: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY [KEY ...]")] = ()
    """What policies see, such as observation.images.img, instead of the state."""
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Runs at a time, each on one thread."""
    backend: Literal["local", "ray"] = "local"
    """Where runs go: processes of this machine, or tasks of a Ray cluster that shares the file system."""
    address: str | None = None
    """The Ray cluster's address; by default the one that is running here, else one is started."""
    only_tables: bool = False
    """Run nothing; write the tables of what there is, and say what is missing."""
    publish: Path | None = None
    """Copy what is worth committing there: tables, figures, commands and compressed records."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Training seeds, if not the scale's."""
    methods: Annotated[tuple[str, ...], tyro.conf.arg(metavar="METHOD [METHOD ...]")] = ()
    """Run only these, named as their directories are, such as bc oat oat-unordered; tables say what was not run."""
    execute: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Run only what executes so many actions of each chunk, where experiments compare several numbers."""
    films: bool = True
    """Film an episode of each task, where a graphics library is installed."""
    decoding: DecodingName = "usual"
    """How policies over tokens act in the paper's tables of success: as they were trained for; without their remainder;
    or as in the paper, sampled and without. At scale paper they were trained to do as in the paper."""
    minutes: Annotated[tuple[float, ...], tyro.conf.arg(metavar="MINUTES [MINUTES ...]")] = ()
    """Minutes of training that figure-learning runs, such as 4 12; by default 4, 12, 36 and 108, which takes long."""

    def __post_init__(self) -> None:
        check_simulator(self.sim)
        if not self.names:
            raise InvalidOption("name at least one experiment, such as table-sim")
        for name in self.names:
            if name not in EXPERIMENTS:
                raise unknown_name("experiment", name, EXPERIMENTS)
            only_in = EXPERIMENTS[name].only_in
            if only_in not in (None, self.sim):
                raise InvalidOption(f"{name} means nothing in {self.sim}: add --sim {only_in}")
        if self.execute is not None and self.execute < 1:
            raise InvalidOption(f"execute must be at least 1, got {self.execute}")
        if self.jobs < 1 or (self.seeds is not None and self.seeds < 1):
            raise InvalidOption(f"jobs and seeds must be at least 1, got {self.jobs} and {self.seeds}")
        self._check_minutes()
        fixed = [name for name in self.names if not EXPERIMENTS[name].any_decoding]
        if self.decoding != "usual" and fixed:
            raise InvalidOption(f"{', '.join(fixed)} settles how policies decode: leave out --decoding")
        if self.address is not None and self.backend != "ray":
            raise InvalidOption("an address is for --backend ray")

    @property
    def study_name(self) -> str:
        """Return the name of the study's folder: policies that see something else are studied apart."""
        return "-".join((self.sim, *(key.rpartition(".")[2] for key in self.observe)))

    def _check_minutes(self) -> None:
        if any(minutes <= 0 for minutes in self.minutes) or len(set(self.minutes)) < len(self.minutes):
            raise InvalidOption(f"minutes must be positive and distinct, got {' '.join(map(str, self.minutes))}")
        takers = [name for name, entry in EXPERIMENTS.items() if entry.several_budgets]
        if self.minutes and not set(takers) & set(self.names):
            raise InvalidOption(f"--minutes is for {', '.join(takers)}: the minutes of the others are their scale's")
