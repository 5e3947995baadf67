"""What to evaluate; importing it costs nothing, so that the command line can show its help at once."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from oat.errors import InvalidOption
from oat.sims.config import SimulatorName


@dataclass(frozen=True)
class EvalConfig:
    """A policy, a simulator, and how many episodes."""

    policy: tyro.conf.Positional[Path]
    """The policy's checkpoint or run."""
    sim: SimulatorName
    """Which benchmark."""
    out: Path
    """Directory of the records; an evaluation that was interrupted continues there."""
    tasks: tuple[str, ...] = ()
    """Task names, such as box-close coffee-pull; by default the benchmark's tasks that the policy was trained on."""
    episodes: int = 50
    """Episodes per task and seed."""
    seeds: int = 1
    """Groups of episodes, each with initial conditions of its own; the paper has 5."""
    num_tokens: tuple[int, ...] = ()
    """Prefix lengths K to evaluate, such as 1 2 4 8; all tokens by default."""
    temperature: float = 1.0
    """Of token sampling."""
    top_k: int = 10
    """Sample among this many most likely tokens; 0 for all."""
    greedy: bool = False
    """Always take the most likely token."""
    denoising_steps: int = 10
    """Of a diffusion policy."""
    execute: int | None = None
    """Actions of each chunk that are executed, if not the protocol's 16."""
    split: Literal["reporting", "selection"] = "reporting"
    """Initial conditions for reported numbers, or those for choosing among checkpoints."""
    workers: int = field(default_factory=lambda: 2 * (os.cpu_count() or 1))
    """Simulator processes."""

    def __post_init__(self) -> None:
        if min(self.episodes, self.seeds, self.workers) < 1:
            raise InvalidOption("episodes, seeds and workers must be at least 1")
