"""Open the data sets that the page tells of and measures tokenizers on."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from oat.data.episodes import Episodes, open_dataset
from oat.data.provenance import read_demonstrator


@dataclass(frozen=True)
class NamedDataset:
    """Hold a data set with its name on the page."""

    name: str
    path: Path
    episodes: Episodes
    demonstrator: str = "unknown"
    """Who demonstrated, such as "scripted"."""


def load_dataset(name: str, path: Path) -> NamedDataset:
    """Open the data set at a path, and read who demonstrated."""
    return NamedDataset(name, path, open_dataset(path), read_demonstrator(path))


def find_dataset(path: Path, datasets: Iterable[NamedDataset]) -> list[NamedDataset]:
    """Return the data set that was opened from a path, however that path is spelled, or nothing."""
    return [dataset for dataset in datasets if dataset.path.resolve() == path.resolve()]
