"""What `oat report` can show of a directory: it is walked once, and only configurations are read."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from oat.errors import InvalidOption, OatError
from oat.evaluation.records import COMPRESSED_RECORDS_FILE, RECORDS_FILE
from oat.io.checkpoints import checkpoint_kind, find_checkpoint
from oat.policies import POLICIES
from oat.tokenizers import TOKENIZERS

LOOKS_FOR = (
    "data sets (LeRobot directories with meta/info.json), tokenizers of `oat fit`, policies of `oat train`, "
    "records of `oat eval` (records.jsonl or records.jsonl.gz, with videos/*.mp4 beside them) and tables/*.json"
)
LOG_FILE = "metrics.jsonl"


def method_of(name: str) -> str:
    """A run's name without its seed, and how many actions it executed: seeds of one method are drawn alike."""
    return re.sub(r"-seed\d+(-execute\d+)?$", "", name)


@dataclass
class Findings:
    """Paths below `root`, in the order of their names."""

    root: Path
    datasets: list[Path] = field(default_factory=list)
    tokenizers: list[Path] = field(default_factory=list)
    """Checkpoints, or runs with a best one."""
    policies: list[Path] = field(default_factory=list)
    runs: list[Path] = field(default_factory=list)
    """Directories with the log of a training."""
    records: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What was found but could not be read or shown, and why."""

    def names(self, paths: Sequence[Path]) -> dict[Path, str]:
        """What to call each of these: its last part, or all of it from the root where that is not unique."""
        last = [self.root.resolve().name if path == self.root else path.name for path in paths]
        whole = [path.relative_to(self.root).as_posix() for path in paths]
        return {
            path: short if last.count(short) == 1 else long
            for path, short, long in zip(paths, last, whole, strict=True)
        }

    @contextmanager
    def noting_problems(self) -> Iterator[None]:
        """One unreadable file does not cost the page, but the page says so."""
        try:
            yield
        except (OatError, OSError) as error:
            self.problems.append(" ".join(str(error).split()))


def find(root: Path) -> Findings:
    """Everything that can be shown; a directory without anything is an error."""
    if not root.is_dir():
        raise InvalidOption(f"{root} is no directory. `oat report` shows what lies below one: {LOOKS_FOR}.")
    found = Findings(root)
    _visit(root, found, set())
    if not any((found.datasets, found.tokenizers, found.policies, found.runs, found.records, found.tables)):
        raise InvalidOption(f"below {root} there is nothing to report. `oat report` looks for {LOOKS_FOR}.")
    return found


def _visit(folder: Path, found: Findings, seen: set[Path]) -> None:
    """Sort a folder in; data sets, checkpoints and runs are one thing each, so their insides are not searched."""
    if folder.resolve() in seen:  # links may lead in circles
        return
    seen.add(folder.resolve())
    if (folder / "meta" / "info.json").exists():
        found.datasets.append(folder)
        return
    kind = checkpoint_kind(find_checkpoint(folder))
    if kind in TOKENIZERS:
        found.tokenizers.append(folder)
    elif kind in POLICIES:
        found.policies.append(folder)
    if (folder / LOG_FILE).exists():
        found.runs.append(folder)
    if kind is not None or (folder / LOG_FILE).exists():
        return
    for path in sorted(path for path in folder.iterdir() if not path.name.startswith(".")):
        if path.is_dir():
            _visit(path, found, seen)
        elif path.name in (RECORDS_FILE, COMPRESSED_RECORDS_FILE):
            found.records.append(path)
        elif path.suffix == ".json" and folder.name == "tables":
            found.tables.append(path)
