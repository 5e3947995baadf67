"""The record of a campaign: a line of JSON for each trial, from which it continues, and the table of them."""

from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.campaign.trial import Outcome
from oat.io.json_lines import JsonLinesWriter, read_json_lines
from oat.tables.table import Table


@dataclass(frozen=True)
class Entry:
    """Hold one trial's outcome."""

    kind: str
    seed: int
    number: int
    target: str
    attempts: int
    failure: str | None
    seconds: float

    @property
    def reproduction(self) -> str:
        """Return the command that makes this trial again."""
        return f"python -m benchmarks.campaign --only {self.kind} --seed {self.seed} --trial {self.number}"


class Ledger:
    """Keep the entries of a campaign in a file that survives a kill."""

    def __init__(self, file: Path) -> None:
        self.entries: list[Entry] = []
        size = 0
        if file.exists():
            self.entries, size = read_json_lines(file, lambda values: Entry(**values), "a trial of a campaign")
        self._file = JsonLinesWriter(file, size)
        self._totals: dict[tuple[str, int], Total] = {}
        for entry in self.entries:
            self._add(entry)

    def enter(self, kind: str, seed: int, number: int, outcome: Outcome, seconds: float) -> Entry:
        """Write down a trial."""
        entry = Entry(kind, seed, number, **asdict(outcome), seconds=round(seconds, 3))
        self.entries.append(entry)
        self._file.append(asdict(entry))
        self._add(entry)
        return entry

    def total(self, kind: str, seed: int) -> "Total":
        """Return what the trials of a kind under a seed come to."""
        return self._totals.get((kind, seed), Total())

    def close(self) -> None:
        """Close the file, in which every trial is already."""
        self._file.close()

    def _add(self, entry: Entry) -> None:
        before = self.total(entry.kind, entry.seed)
        self._totals[entry.kind, entry.seed] = Total(
            before.trials + 1, before.attempts + entry.attempts, before.seconds + entry.seconds
        )


@dataclass(frozen=True)
class Total:
    """Hold how many trials and attempts were made, and how long they took."""

    trials: int = 0
    attempts: int = 0
    seconds: float = 0.0


def summarize(entries: list[Entry]) -> Table:
    """Return the table campaign × trials × failures, a row for each target."""
    rows = []
    for kind, target in dict.fromkeys((entry.kind, entry.target) for entry in entries):
        chosen = [entry for entry in entries if (entry.kind, entry.target) == (kind, target)]
        failures = sum(entry.failure is not None for entry in chosen)
        minutes = sum(entry.seconds for entry in chosen) / 60
        attempts = sum(entry.attempts for entry in chosen)
        rows.append((kind, target, f"{attempts:,}", str(failures), f"{minutes:.1f}"))
    rows.sort()
    return Table("campaign", ("campaign", "against", "trials", "failures", "minutes"), tuple(rows))
