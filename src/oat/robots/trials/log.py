"""Log a series of trials in a file: its plan, then a line for every trial, written as soon as it is judged.

Lines name the letter of a trial, not its method. Somebody who wants to can work the methods out of the file, by its
seed or by how a line's chunks were decoded: it prevents accidents, not cheating. Revealing the methods before the end
leaves a line, too.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from oat.errors import CorruptDataset, InvalidOption, WriteFailed
from oat.io.json_lines import JsonLinesWriter, read_json_lines
from oat.robots.trials.plan import Trial, TrialPlan

Verdict = Literal["success", "failure", "void"]
"""A void trial does not count, such as when somebody bumped into the table; it is repeated."""

SIMULATOR = "simulator"
"""The name of the judge of simulated robots; tables of its trials say that no real robot acted."""


@dataclass(frozen=True)
class TrialRecord:
    """Record how one trial went and what the judge said of it."""

    trial: Trial
    verdict: Verdict
    remark: str
    judge: str
    """The judge's name: the operator, or a simulator."""
    begun: str
    """When the trial began, in UTC."""
    seconds: float
    steps: int = 0
    """Actions executed."""
    holds: int = 0
    """Steps at which the robot held still for want of an action."""
    late: int = 0
    """Steps that began after their time."""
    discarded: int = 0
    """Chunks that came too late to be executed."""
    undecodable: int = 0
    """Chunks whose tokens gave no actions."""
    chunks: int = 0
    """Chunks that took over; 0 in logs of before."""
    tokens: int = 0
    """Tokens of these chunks together, or denoising steps."""
    samples: int | None = None
    """Chunks that were drawn for each of these; None where the server does not tell, and in logs of before."""
    decoding: str | None = None
    """The name of the server's decoding, or None like the samples; K, if a method asks for fewer tokens, is in the
    plan."""


@dataclass(frozen=True)
class Revealed:
    """Record that the methods were shown before all trials were judged."""

    revealed: str
    """When they were shown, in UTC."""


Line = TrialPlan | TrialRecord | Revealed


class TrialLog:
    """Keep the trials of a series; nothing is written before the first trial is judged."""

    def __init__(self, path: Path, plan: TrialPlan, entries: Sequence[Line] = (), size: int = 0) -> None:
        self.path = path
        self.plan = plan
        self._entries = list(entries)
        self._size = size  # bytes of whole lines; a line that a kill cut short is overwritten
        self._found = _file_size(path)
        self._check()

    @classmethod
    def read(cls, path: Path) -> "TrialLog":
        """Read a log, which must exist and begin with its plan."""
        if not path.exists():
            raise InvalidOption(f"{path} does not exist; `oat trials` writes it")
        lines, size = read_json_lines(path, _from_json, "a line of a trial log")
        if not lines or not isinstance(lines[0], TrialPlan):
            raise CorruptDataset(f"{path} does not begin with a plan of trials")
        return cls(path, lines[0], lines[1:], size)

    @classmethod
    def open(cls, path: Path, plan: TrialPlan) -> "TrialLog":
        """Return a new log, or one to continue, whose plan must be this one."""
        if not path.exists() or b"\n" not in path.read_bytes():  # not even its first line was finished
            return cls(path, plan)
        log = cls.read(path)
        if differences := log.plan.differences(plan):
            raise InvalidOption(f"{path} has another plan ({'; '.join(differences)}); choose another file")
        return log

    @property
    def records(self) -> list[TrialRecord]:
        """Return every trial that was made, void ones included."""
        return [entry for entry in self._entries if isinstance(entry, TrialRecord)]

    @property
    def judged(self) -> dict[Trial, TrialRecord]:
        """Return the trials that count, which are those that are not void."""
        return {record.trial: record for record in self.records if record.verdict != "void"}

    @property
    def remaining(self) -> list[Trial]:
        """Return the trials that are still to be made, in their order; void ones are made again."""
        judged = self.judged
        return [trial for trial in self.plan.order() if trial not in judged]

    @property
    def judged_when_revealed(self) -> int | None:
        """Return how many trials counted when the methods were shown before the end; None if they were not."""
        for place, entry in enumerate(self._entries):
            if isinstance(entry, Revealed):
                before = self._entries[:place]
                return sum(isinstance(each, TrialRecord) and each.verdict != "void" for each in before)
        return None

    def append(self, entry: TrialRecord | Revealed) -> None:
        """Write a line at once, so that a crash loses at most the trial that was running."""
        if _file_size(self.path) != self._found:
            raise WriteFailed(f"{self.path} was changed by another process in the meantime; it was left as it is")
        with closing(JsonLinesWriter(self.path, self._size)) as writer:
            if self._size == 0:
                writer.append(asdict(self.plan))
            writer.append(asdict(entry))
        self._size = self._found = _file_size(self.path)
        self._entries.append(entry)

    def _check(self) -> None:
        """Raise an error unless every trial that counts is of this plan and counts once."""
        counted = Counter(record.trial for record in self.records if record.verdict != "void")
        planned = set(self.plan.order())
        for trial, times in counted.items():
            if trial not in planned or times > 1:
                problem = "judged twice" if times > 1 else "not in the plan"
                raise CorruptDataset(
                    f"{self.path}: trial {trial.letter} of block {trial.block + 1} of {trial.task} is {problem}"
                )


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _from_json(values: dict[str, Any]) -> Line:
    if "methods" in values:
        return TrialPlan.from_json(values)
    if "revealed" in values:
        return Revealed(**values)
    if values["verdict"] not in get_args(Verdict):
        raise ValueError(f"{values['verdict']!r} is not a verdict")
    return TrialRecord(**{**values, "trial": Trial(**values["trial"])})
