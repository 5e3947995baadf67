"""Put the promises of SECURITY.md to the test: python -m benchmarks.campaign --minutes 30 --out out/campaign.

Each trial is a function of its kind, the seed and its number, and runs in processes of its own. Its outcome becomes a
line of OUT/trials.jsonl; the same command continues there. Kinds stop when they have reached their goals.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numerical libraries are imported: a child is forked from one thread

import shutil
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.markup import escape

from benchmarks.campaign.children import check_single_threaded
from benchmarks.campaign.kinds import KINDS
from benchmarks.campaign.ledger import Entry, Ledger, summarize
from benchmarks.campaign.trial import Outcome, Place, generator_of
from oat.tables.markdown import to_markdown
from oat.tables.terminal import to_terminal


@dataclass(frozen=True)
class Options:
    """Choose what is tried, and for how long."""

    minutes: float = 2.0
    """How long; a trial that has begun is finished."""
    only: tuple[str, ...] = ()
    """Kinds of trials; all by default."""
    seed: int = 0
    """Determines all trials."""
    trial: int | None = None
    """Make only the trial of this number, of every kind that --only names, whether or not it was made before."""
    out: Path = Path("out/campaign")
    """Where the trials are written down."""


def run_trial(kind: str, seed: int, number: int, out: Path) -> tuple[Outcome, float]:
    """Make one trial in an empty folder, which stays when something broke."""
    folder = (out / "trials" / f"{kind}-{seed}-{number}").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    place = Place(folder, (out / "workshop").resolve())
    begin = time.monotonic()
    outcome = KINDS[kind].try_once(number, generator_of(kind, seed, number), place)
    if outcome.failure is None:
        shutil.rmtree(folder)
    return outcome, time.monotonic() - begin


def next_kind(ledger: Ledger, chosen: tuple[str, ...], seed: int) -> str | None:
    """Return the kind that has had least of its time and is not at its goal; None when all are."""
    totals = {kind: ledger.total(kind, seed) for kind in chosen}
    spent = {
        kind: total.seconds / KINDS[kind].share for kind, total in totals.items() if total.attempts < KINDS[kind].goal
    }
    return min(spent, key=spent.__getitem__, default=None)


def campaign(options: Options, console: Console) -> list[Entry]:
    """Make trials until the time is over or every kind has reached its goal; return all that are written down."""
    unknown = set(options.only) - set(KINDS)
    assert not unknown, f"there is no kind {unknown}, only {', '.join(KINDS)}"
    chosen = options.only or tuple(KINDS)
    end = time.monotonic() + 60 * options.minutes
    with closing(Ledger(options.out / "trials.jsonl")) as ledger:
        while time.monotonic() < end and (kind := next_kind(ledger, chosen, options.seed)) is not None:
            number = ledger.total(kind, options.seed).trials
            outcome, seconds = run_trial(kind, options.seed, number, options.out)
            entry = ledger.enter(kind, options.seed, number, outcome, seconds)
            if entry.failure is not None:
                console.print(f"{kind} {number}: {escape(entry.failure)}", soft_wrap=True, highlight=False)
        return ledger.entries


def main(options: Options) -> int:
    """Run a campaign or one trial of it, print the table, and return how many trials failed."""
    console = Console()
    check_single_threaded()
    if options.trial is None:
        entries = campaign(options, console)
        (options.out / "campaign.md").write_text(to_markdown(summarize(entries)))
    else:
        entries = []
        for kind in options.only or tuple(KINDS):
            outcome, seconds = run_trial(kind, options.seed, options.trial, options.out)
            values = (outcome.target, outcome.attempts, outcome.failure, seconds)
            entries.append(Entry(kind, options.seed, options.trial, *values))
    console.print(to_terminal(summarize(entries)))
    broken = [entry for entry in entries if entry.failure is not None]
    for entry in broken:
        console.print(f"{entry.reproduction}  # {escape(entry.failure or '')}", soft_wrap=True, highlight=False)
    return len(broken)


if __name__ == "__main__":
    sys.exit(min(main(tyro.cli(Options, description=__doc__)), 1))
