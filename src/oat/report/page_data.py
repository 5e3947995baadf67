"""Load and measure everything that the page shows; nothing here knows how it is drawn."""

import base64
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.markup import escape

from oat.errors import InvalidOption
from oat.io.progress import progress_bar
from oat.report.checkpoints import Checkpoint, read_checkpoints
from oat.report.curves import Curve, read_training_curves
from oat.report.datasets import NamedDataset, find_dataset, load_dataset
from oat.report.measured_tokenizers import MeasuredTokenizer, best_ordered, measure_tokenizer
from oat.report.results_folder import ResultsFolder, method_of
from oat.report.rollouts import RolloutGroup, read_rollouts
from oat.report.token_courses import TokenCourses, read_token_courses
from oat.report.videos import Video, choose_videos
from oat.tables.files import load_tables
from oat.tables.table import PICTURE, Table

_PICTURE_BYTES = 3_000_000  # the page holds all pictures itself, and should still be small enough to send


@dataclass(frozen=True)
class TablesFile:
    """Hold the tables of one file, and the pictures that were drawn with them."""

    tables: tuple[Table, ...]
    pictures: tuple[str, ...]
    """The pictures as data: addresses."""


@dataclass
class PageData:
    """Hold what the page shows; a list is empty where nothing was found."""

    datasets: list[NamedDataset] = field(default_factory=list)
    tokenizers: list[MeasuredTokenizer] = field(default_factory=list)
    rollouts: list[RolloutGroup] = field(default_factory=list)
    videos: list[Video] = field(default_factory=list)
    videos_left_out: int = 0
    depths: list[TokenCourses] = field(default_factory=list)
    depths_left_out: int = 0
    tables: list[TablesFile] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)

    def methods(self) -> list[str]:
        """Return the methods that figures tell apart by colour, possibly several times."""
        return [
            *(tokenizer.method for tokenizer in self.tokenizers),
            *(method for group in self.rollouts for method in group.methods.values()),
            *(method_of(curve.run) for curve in self.curves),
        ]

    def missing(self) -> list[str]:
        """Return the names of the kinds of results that were not found."""
        parts = {
            "data sets": self.datasets,
            "tokenizers": self.tokenizers,
            "episode records": self.rollouts,
            "rollout videos": self.videos,
            "tables": self.tables,
            "training logs": self.curves,
        }
        return [name for name, part in parts.items() if not part]


def load_page_data(folder: ResultsFolder, data: Path | None = None) -> PageData:
    """Read and measure what is in the folder, noting among its problems what cannot be read.

    Tokenizers are measured on the data set at `data`, or without it on the one that each was fitted to.
    """
    datasets = _load_datasets(folder, data)
    rollouts = read_rollouts(folder)
    videos, videos_left_out = choose_videos(folder, rollouts)
    depths, depths_left_out = read_token_courses(folder, rollouts)
    page_data = PageData(
        datasets=datasets,
        tokenizers=_measure_tokenizers(folder, datasets if data is None else find_dataset(data, datasets)),
        rollouts=rollouts,
        videos=videos,
        videos_left_out=videos_left_out,
        depths=depths,
        depths_left_out=depths_left_out,
        tables=_load_tables(folder),
        curves=read_training_curves(folder),
        checkpoints=read_checkpoints(folder),
    )
    # A tokenizer that could not be measured is an error that --data may cure; a policy's commands are worth a page.
    if replace(page_data, checkpoints=[]) == PageData() and not folder.policies:
        raise InvalidOption(f"nothing below {folder.root} could be read: {'; '.join(folder.problems)}")
    return page_data


def _load_datasets(folder: ResultsFolder, data: Path | None) -> list[NamedDataset]:
    datasets = []
    for path, name in folder.short_names(folder.datasets).items():
        with folder.noting_problems():
            datasets.append(load_dataset(name, path))
    # The user named this one: where it cannot be read, that is an error and not a problem to note.
    if data is not None and not find_dataset(data, datasets):
        datasets.append(load_dataset(data.resolve().name, data))
    return datasets


def _measure_tokenizers(folder: ResultsFolder, datasets: list[NamedDataset]) -> list[MeasuredTokenizer]:
    tokenizers = []
    with progress_bar("tokenizers", len(folder.tokenizers), quiet=not folder.tokenizers) as bar:
        for path, name in folder.short_names(folder.tokenizers).items():
            with folder.noting_problems():
                tokenizers.append(measure_tokenizer(name, path, datasets))
            bar.advance(1, escape(name))
    # The page opens with the first: the slider should begin with the tokenizer that refines best.
    best = best_ordered(tokenizers)
    return sorted(tokenizers, key=lambda tokenizer: (tokenizer is not best, not tokenizer.ordered))


def _load_tables(folder: ResultsFolder) -> list[TablesFile]:
    files = []
    for path in folder.tables:
        with folder.noting_problems():
            files.append(_load_tables_file(path, folder))
    return files


def _load_tables_file(path: Path, folder: ResultsFolder) -> TablesFile:
    """Load the tables of a file without the notes that name their pictures, because the page shows these."""
    tables = load_tables(path)
    pictures = [note.removeprefix(PICTURE) for table in tables for note in table.notes if note.startswith(PICTURE)]
    without_pictures = tuple(
        replace(table, notes=tuple(note for note in table.notes if not note.startswith(PICTURE))) for table in tables
    )
    # Only the name counts: a table must not be able to embed files from elsewhere.
    shown = (
        _load_picture(path.parent.parent / "figures" / Path(name).name, folder) for name in dict.fromkeys(pictures)
    )
    return TablesFile(without_pictures, tuple(picture for picture in shown if picture))


def _load_picture(file: Path, folder: ResultsFolder) -> str:
    """Return a picture as a data: address; nothing where it is not there, or too large."""
    if file.suffix != ".png" or not file.exists():
        return ""
    if file.stat().st_size > _PICTURE_BYTES:
        folder.problems.append(f"figures/{file.name} is left out to keep this page small")
        return ""
    return f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"
