"""How a benchmark is run: a frozen value whose hash is in every record, so that tables cannot mix protocols."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Literal

from oat.errors import InvalidOption, unknown_name

_LONGEST_CHUNK = 64


@dataclass(frozen=True)
class Protocol:
    """Everything that an episode's outcome depends on, apart from the policy."""

    simulator: str
    max_steps: int
    """An episode that is not solved by then has failed."""
    success: str
    """The rule, in words."""
    obs_horizon: int = 2
    """H_o: frames that the policy sees."""
    execute: int = 16
    """Actions of each chunk that are executed before the next one is predicted."""
    cameras: tuple[str, ...] = ()
    image_size: int = 128
    trained_on: Literal["benchmark", "task"] = "benchmark"
    """One tokenizer and policy for all tasks of the benchmark, or one for each task."""

    def __post_init__(self) -> None:
        if min(self.max_steps, self.obs_horizon, self.execute) < 1:
            raise InvalidOption("max_steps, obs_horizon and execute must be at least 1")

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]


PROTOCOLS: dict[str, Protocol] = {
    "metaworld": Protocol("metaworld", max_steps=500, success="the first step whose info says success"),
    "pusht": Protocol(
        "pusht",
        max_steps=300,
        success="the block covers more than 95 % of its outline; score: the best coverage / 0.95, at most 1",
        image_size=96,
    ),
    "libero": Protocol(
        "libero",
        max_steps=600,  # as LIBERO's own evaluation has it
        success="the first step after which the goal of the task's definition holds",
    ),
    "robomimic": Protocol(
        "robomimic", max_steps=400, success="the first step at which robosuite's check of the task holds"
    ),
    "robocasa": Protocol(
        "robocasa", max_steps=500, success="the first step at which RoboCasa's check of the task holds"
    ),
}


def find_protocol(
    simulator: str,
    execute: int | None = None,
    cameras: tuple[str, ...] | None = None,
    image_size: int | None = None,
) -> Protocol:
    """The benchmark's protocol, or a variant of it with its own hash."""
    if simulator not in PROTOCOLS:
        raise unknown_name("simulator", simulator, PROTOCOLS)
    changes = {"execute": execute, "cameras": cameras, "image_size": image_size}
    return replace(PROTOCOLS[simulator], **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


def protocol_name(hashed: str) -> str:
    """As a person calls it, if it is known: records keep its hash."""
    return _known_names().get(hashed, f"protocol {hashed}")


@cache
def _known_names() -> dict[str, str]:
    """Of the benchmarks' protocols, and of those that execute more or less of each chunk."""
    variants = {
        replace(protocol, execute=count).hash: f"{name}, executing {count}"
        for name, protocol in PROTOCOLS.items()
        for count in range(1, _LONGEST_CHUNK + 1)
    }
    return variants | {protocol.hash: name for name, protocol in PROTOCOLS.items()}
