"""Configure the encoding and decoding of whole data sets; importing this is cheap, for the command line's help."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from oat.errors import InvalidOption

Backend = Literal["local", "ray"]

LARGEST_PART = 1 << 20
"""Chunks that a file may hold, so that what reads one knows how much that can be."""


@dataclass(frozen=True)
class EncodeConfig:
    """Configure which data set to encode, with what, and where to."""

    data: tyro.conf.Positional[Path]
    """Demonstrations in any known format."""
    tokenizer: Path
    """The tokenizer's checkpoint or run, or its name in oat tokenizers; a copy of it is kept with the tokens."""
    out: Path
    """The directory to write: data/*.parquet, tokens.json and the tokenizer."""
    subset: str | None = None
    """Only this named group of episodes: an HDF5 filter key or a LeRobot split."""
    episodes: str | None = None
    """Only these episodes, such as 0:50,60."""
    errors: bool = True
    """Whether to decode every prefix of every chunk and write its error, which takes several times as long."""
    part_size: int = 65_536
    """Chunks per file, at most 1,048,576; after an interruption, whole files are kept."""
    workers: int | None = None
    """Processes that encode at the same time; by default one for each core."""
    backend: Backend = "local"
    """Where they run: on this machine, or by Ray Data on a cluster, where DATA and OUT have the same paths."""
    address: str | None = None
    """The Ray cluster's address; by default the one that is running here, else one is started for this."""

    def __post_init__(self) -> None:
        check_part_size(self.part_size)
        check_workers(self.workers, self.backend, self.address)


@dataclass(frozen=True)
class DecodeConfig:
    """Configure which tokens to decode, how far, and where to."""

    tokens: tyro.conf.Positional[Path]
    """What oat encode wrote."""
    out: Path
    """The directory to write: data/*.parquet."""
    num_tokens: int | None = None
    """Decode at most the first K tokens of each chunk, of an ordered tokenizer; by default all that there are."""
    num_actions: int | None = None
    """Decode only the first actions of each chunk."""
    data: Path | None = None
    """The encoded data set, if the tokenizer's actions are relative to its states."""
    workers: int | None = None
    """Processes that decode at the same time; by default one for each core."""
    backend: Backend = "local"
    """Where they run: on this machine, or as Ray Data on a cluster, which must see all paths."""
    address: str | None = None
    """The Ray cluster's address; by default the one that is running here, else one is started for this."""

    def __post_init__(self) -> None:
        check_workers(self.workers, self.backend, self.address)


def check_part_size(part_size: int) -> None:
    """Raise `InvalidOption` for files without chunks, and for absurdly large ones."""
    if not 1 <= part_size <= LARGEST_PART:
        raise InvalidOption(f"part_size must be in 1…{LARGEST_PART:,}, got {part_size}")


def check_workers(workers: int | None, backend: Backend, address: str | None) -> None:
    """Raise `InvalidOption` for a number of workers below one, and for an address that nobody would use."""
    if workers is not None and workers < 1:
        raise InvalidOption(f"workers must be at least 1, got {workers}")
    if address is not None and backend != "ray":
        raise InvalidOption("an address is for --backend ray")
