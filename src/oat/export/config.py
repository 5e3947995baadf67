"""What to export and what to time; importing it costs nothing, so that the command line can show its help at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from oat.errors import InvalidOption

EngineName = Literal["eager", "compiled", "onnx"]
Precision = Literal["float32", "int8"]


@dataclass(frozen=True)
class LatencyConfig:
    """Say which policy is timed, in which engines and how often."""

    policy: tyro.conf.Positional[Path]
    """The policy's checkpoint or run, or what oat export wrote, of which only ONNX can be timed."""
    num_tokens: tuple[int, ...] = (1, 2, 4, 8)
    """Prefix lengths K, where every prefix decodes."""
    batch: tuple[int, ...] = (1,)
    """Robots at once."""
    num_actions: int | None = None
    """Decode only the chunk's first actions."""
    engines: tuple[EngineName, ...] = ("eager", "compiled", "onnx")
    """What runs the policy: PyTorch as it is, PyTorch's compiler, ONNX Runtime."""
    repeats: int = 200
    """Chunks that are timed for every number in the table."""
    threads: int = 1
    """Of the computation."""

    def __post_init__(self) -> None:
        if min(self.repeats, self.threads, *self.batch, *self.num_tokens) < 1 or not self.engines:
            raise InvalidOption("repeats, threads, batch and num_tokens must be at least 1, with an engine")
