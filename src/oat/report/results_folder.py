"""Find what `oat report` can show below a directory: it is walked once, and only configurations are read."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from oat.errors import InvalidOption, OatError
from oat.evaluation.records import COMPRESSED_RECORDS_FILE, RECORDS_FILE
from oat.io.checkpoints import LOG_FILE, checkpoint_kind, find_checkpoint
from oat.policies import POLICIES
from oat.tokenizers import TOKENIZERS

SEARCHED_FILES = (
    "data sets (LeRobot directories with meta/info.json), tokenizers of `oat fit`, policies of `oat train`, "
    "records of `oat eval` (records.jsonl or records.jsonl.gz, with videos/*.mp4 beside them) and tables/*.json"
)


def method_of(name: str) -> str:
    """Return a run's name without its training seed and the number of actions it executed.

    Runs that differ in nothing else belong to one method, and are drawn in one colour.
    """
    return re.sub(r"-seed\d+(-execute\d+)?$", "", name)


@dataclass
class ResultsFolder:
    """List the results below a directory by what they are, each list in the order of the paths."""

    root: Path
    datasets: list[Path] = field(default_factory=list)
    tokenizers: list[Path] = field(default_factory=list)
    """Checkpoints, or the folders of runs that have a best checkpoint."""
    policies: list[Path] = field(default_factory=list)
    """Checkpoints, or the folders of runs that have a best checkpoint."""
    runs: list[Path] = field(default_factory=list)
    """Directories with the log of a training run."""
    records: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Sentences on what was found but could not be read or shown, and why."""

    def short_names(self, paths: Sequence[Path]) -> dict[Path, str]:
        """Return what to call each path: its last part, or all of it from the root where that is not unique."""
        last_parts = [self.root.resolve().name if path == self.root else path.name for path in paths]
        relative_paths = [path.relative_to(self.root).as_posix() for path in paths]
        return {
            path: short if last_parts.count(short) == 1 else long
            for path, short, long in zip(paths, last_parts, relative_paths, strict=True)
        }

    @contextmanager
    def noting_problems(self) -> Iterator[None]:
        """Note an error among the problems instead of raising it: one unreadable file must not cost the page."""
        try:
            yield
        except (OatError, OSError) as error:
            self.problems.append(" ".join(str(error).split()))


def scan_folder(root: Path) -> ResultsFolder:
    """Return everything below a directory that can be shown; raise InvalidOption where there is nothing."""
    if not root.is_dir():
        raise InvalidOption(f"{root} is not a directory. `oat report` shows what lies below one: {SEARCHED_FILES}.")
    folder = ResultsFolder(root)
    _scan(root, folder, set())
    if not any((folder.datasets, folder.tokenizers, folder.policies, folder.runs, folder.records, folder.tables)):
        raise InvalidOption(f"below {root} there is nothing to report. `oat report` looks for {SEARCHED_FILES}.")
    return folder


def _scan(directory: Path, folder: ResultsFolder, visited: set[Path]) -> None:
    """Add a directory to the list it belongs to, or scan what is in it."""
    # Symbolic links may lead in circles, and one result must not be shown twice.
    if directory.resolve() in visited:
        return
    visited.add(directory.resolve())
    if (directory / "meta" / "info.json").exists():
        folder.datasets.append(directory)
        return
    kind = checkpoint_kind(find_checkpoint(directory))
    if kind in TOKENIZERS:
        folder.tokenizers.append(directory)
    elif kind in POLICIES:
        folder.policies.append(directory)
    has_log = (directory / LOG_FILE).exists()
    if has_log:
        folder.runs.append(directory)
    # A run is shown as one thing: the checkpoints inside it are not results of their own.
    if kind is not None or has_log:
        return
    for path in sorted(path for path in directory.iterdir() if not path.name.startswith(".")):
        if path.is_dir():
            _scan(path, folder, visited)
        elif path.name in (RECORDS_FILE, COMPRESSED_RECORDS_FILE):
            folder.records.append(path)
        elif path.suffix == ".json" and directory.name == "tables":
            folder.tables.append(path)
