"""How a benchmark is run: a frozen value whose hash is in every record, so that tables cannot mix protocols."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal

from oat.errors import InvalidOption


@dataclass(frozen=True)
class Protocol:
    """Hold everything that an episode's outcome depends on, apart from the policy; every simulator carries one."""

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
    delay: int = 0
    """Actions of the previous chunk that are executed while the next one is computed; the first is waited for."""

    def __post_init__(self) -> None:
        if min(self.max_steps, self.obs_horizon, self.execute) < 1:
            raise InvalidOption("max_steps, obs_horizon and execute must be at least 1")
        if not 0 <= self.delay < self.execute:
            raise InvalidOption(f"delay must be 0…{self.execute - 1}, below what is executed, got {self.delay}")

    @property
    def hash(self) -> str:
        """Return the fingerprint that records keep; it changes with any field, the words of the rule included."""
        described = asdict(self)
        # Published records are of before there were delays.
        if not self.delay:
            del described["delay"]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]
