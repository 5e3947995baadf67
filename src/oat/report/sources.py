"""What the page is made of: everything that was found, read and measured."""

import base64
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.markup import escape

from oat.data.episodes import open_dataset
from oat.errors import InvalidOption
from oat.io.progress import progress_bar
from oat.report.curves import Curve, training_curves
from oat.report.loaded import Findings, method_of
from oat.report.reconstructions import Data, Reconstruction, best_ordered, reconstruct
from oat.report.rollouts import ClosedLoop, Video, choose_videos, closed_loops
from oat.tables.files import load_tables
from oat.tables.table import PICTURE, Table

_PICTURE_BYTES = 3_000_000


@dataclass(frozen=True)
class Tables:
    """The tables of one file, and the picture that was drawn with them."""

    sheets: tuple[Table, ...]
    picture: str
    """A data: address; empty without a picture."""


@dataclass
class Material:
    """Empty where nothing was found."""

    datasets: list[Data] = field(default_factory=list)
    tokenizers: list[Reconstruction] = field(default_factory=list)
    loops: list[ClosedLoop] = field(default_factory=list)
    videos: list[Video] = field(default_factory=list)
    videos_left_out: int = 0
    tables: list[Tables] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def methods(self) -> list[str]:
        """Everything that figures tell apart by colour."""
        return [
            *(each.method for each in self.tokenizers),
            *(method for loop in self.loops for method in loop.methods.values()),
            *(method_of(curve.run) for curve in self.curves),
        ]

    def missing(self) -> list[str]:
        """What the page has no section for."""
        parts = {
            "data sets": self.datasets,
            "tokenizers": self.tokenizers,
            "episode records": self.loops,
            "rollout videos": self.videos,
            "tables": self.tables,
            "training logs": self.curves,
        }
        return [name for name, part in parts.items() if not part]


def gather(found: Findings, data: Path | None = None) -> Material:
    """Read and measure what was found; what cannot be read is noted among the problems."""
    material = Material()
    _add_datasets(material, found, data)
    _add_tokenizers(material, found, data)
    material.loops = closed_loops(found)
    material.videos, material.videos_left_out = choose_videos(found, material.loops)
    for path in found.tables:
        with found.noting_problems():
            material.tables.append(_read_tables(path, found))
    material.curves = training_curves(found)
    if material == Material() and not found.policies:
        raise InvalidOption(f"nothing below {found.root} could be read: {'; '.join(found.problems)}")
    return material


def _read_tables(path: Path, found: Findings) -> Tables:
    """The page shows the picture that notes name, so they need not name it there."""
    sheets = load_tables(path)
    named = [note.removeprefix(PICTURE) for sheet in sheets for note in sheet.notes if note.startswith(PICTURE)]
    shown = [replace(sheet, notes=tuple(n for n in sheet.notes if not n.startswith(PICTURE))) for sheet in sheets]
    file = path.parent.parent / "figures" / Path(named[0] if named else "").name
    if file.suffix != ".png" or not file.exists():
        return Tables(tuple(shown), "")
    if file.stat().st_size > _PICTURE_BYTES:
        found.problems.append(f"figures/{file.name} is left out to keep this page small")
        return Tables(tuple(shown), "")
    return Tables(tuple(shown), f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}")


def _add_datasets(material: Material, found: Findings, data: Path | None) -> None:
    for path, name in found.names(found.datasets).items():
        with found.noting_problems():
            material.datasets.append(Data(name, path, open_dataset(path)))
    if data is not None and not _at(data, material.datasets):
        material.datasets.append(Data(data.resolve().name, data, open_dataset(data)))


def _at(path: Path, datasets: list[Data]) -> list[Data]:
    return [data for data in datasets if data.path.resolve() == path.resolve()]


def _add_tokenizers(material: Material, found: Findings, data: Path | None) -> None:
    candidates = material.datasets if data is None else _at(data, material.datasets)
    with progress_bar("tokenizers", len(found.tokenizers), quiet=not found.tokenizers) as bar:
        for path, name in found.names(found.tokenizers).items():
            with found.noting_problems():
                material.tokenizers.append(reconstruct(name, path, candidates))
            bar.advance(1, escape(name))
    best = best_ordered(material.tokenizers)  # the page opens with it
    material.tokenizers.sort(key=lambda each: (each is not best, not each.ordered))
