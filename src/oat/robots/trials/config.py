"""Configure which methods try which tasks on which robot; importing this is cheap."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from oat.errors import InvalidOption
from oat.robots.pace import Pace

_METHOD = re.compile(r"(?P<name>[^=,]+)=(?P<policy>[^,]+)(?:,num_tokens=(?P<num_tokens>[1-9]\d*))?")
_MOST_METHODS = 26  # a letter stands for each


@dataclass(frozen=True)
class Contender:
    """Describe a method, and where its chunks come from."""

    name: str
    policy: str
    """A policy server's address, or a policy's directory on this machine."""
    num_tokens: int | None = None
    """K, if not all that the policy generates."""

    @classmethod
    def parse(cls, text: str) -> "Contender":
        """Read a method as the command line gives it: NAME=POLICY or NAME=POLICY,num_tokens=K."""
        found = _METHOD.fullmatch(text)
        if found is None:
            raise InvalidOption(f"a method is given as NAME=POLICY or NAME=POLICY,num_tokens=K, got {text!r}")
        tokens = found["num_tokens"]
        return cls(found["name"], found["policy"], None if tokens is None else int(tokens))

    @property
    def is_served(self) -> bool:
        """Return whether a server runs already; otherwise the policy is served by this process."""
        return "://" in self.policy


@dataclass(frozen=True)
class Driving(Pace):
    """Configure how the robot is driven, alike for every method."""

    seconds: float = 60.0
    """Seconds after which a trial ends by itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.seconds > 0:
            raise InvalidOption(f"seconds must be positive, got {self.seconds:g}")


@dataclass(frozen=True)
class TrialsConfig:
    """Configure a series of trials on a robot."""

    log: tyro.conf.Positional[Path]
    """The file that the trials are written to, such as trials.jsonl; the same command continues it."""
    methods: tuple[str, ...] = ()
    """NAME=POLICY, or NAME=POLICY,num_tokens=K to act from K tokens; POLICY is a server's address such as
    ws://127.0.0.1:8000, or the directory of a policy, which is then served from here."""
    tasks: tuple[str, ...] = ()
    """Tasks as the policies know them, such as "stack cups"."""
    trials: int = 20
    """Trials of each method at each task."""
    robot: str | None = None
    """MODULE:FUNCTION that gives the robot, an object with observe, act and stop (oat.interfaces.Robot); MODULE may be
    a file of this directory. If the robot has home, that is called before every trial."""
    seed: int | None = None
    """Seed of the order; drawn by default, so that nobody knows it."""
    driving: Annotated[Driving, tyro.conf.arg(name="")] = field(default_factory=Driving)
    api_key_file: Path | None = None
    """A file that holds the key of the servers."""
    patience: float = 10.0
    """Seconds after which a server that cannot be reached is given up."""
    table: bool = False
    """Show the table of a finished log, and write it beside the log."""
    reveal: bool = False
    """Show the table although trials are missing; the log will say that later ones were not blind."""

    def __post_init__(self) -> None:
        if self.table or self.reveal:
            return
        names = [contender.name for contender in self.contenders]
        for what, given in (("methods", names), ("tasks", self.tasks)):
            if not given or len(set(given)) < len(given):
                raise InvalidOption(f"name {what}, each once, got {', '.join(given) or 'none'}")
        if len(names) > _MOST_METHODS:
            raise InvalidOption(f"there are letters for at most {_MOST_METHODS} methods, got {len(names)}")
        if self.robot is None:
            raise InvalidOption("name the robot with --robot MODULE:FUNCTION")
        if self.trials < 1 or not self.patience > 0:
            raise InvalidOption(f"trials and patience must be positive, got {self.trials} and {self.patience:g}")

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """Return the methods as they were given, parsed."""
        return tuple(map(Contender.parse, self.methods))
