"""The `oat` command: verb → function, nothing else; the functions are in the files beside this one."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tyro
from rich.console import Console
from rich.markup import escape

from oat.cli import data, deployment, experiments, policies, tokenizers
from oat.cli.help_texts import flowing_help
from oat.cli.kinds import fit_verb, train_verb
from oat.errors import OatError
from oat.io.interruption import Interruption
from oat.io.processes import leave_within
from oat.io.write_errors import explained, leave_refusals_to_callers

_TIDYING_SECONDS = 5.0
_DESCRIPTION = """Ordered action tokenization: robot action chunks to a few ordered tokens and back.

Each verb explains itself: oat VERB --help. Add --debug to any of them for the traceback of an error."""

VERBS: dict[str, Any] = {
    "collect": data.collect,
    "inspect": data.inspect,
    "view": data.view,
    "convert": data.convert,
    "fit": fit_verb(tokenizers.fit),
    "tokenizers": tokenizers.tokenizers,
    "encode": tokenizers.encode,
    "decode": tokenizers.decode,
    "train": train_verb(policies.train),
    "calibrate": policies.calibrate,
    "eval": policies.evaluate,
    "compare": policies.compare,
    "report": experiments.report,
    "export": deployment.export,
    "bench": deployment.bench,
    "serve": deployment.serve,
    "trials": deployment.trials,
    "reproduce": experiments.reproduce,
}

_BY_KIND: dict[str, Callable[[Sequence[str]], Any]] = {
    "fit": partial(fit_verb, tokenizers.fit),
    "train": partial(train_verb, policies.train),
}
"""Verbs whose options depend on what is chosen; what `VERBS` holds of them has the usual choice."""


def _abandon_output() -> None:
    """Drop what standard output could not take: Python would try again on its way out, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_verb(words: list[str]) -> None:
    chosen = {verb: make(words[1:]) for verb, make in _BY_KIND.items() if words[:1] == [verb]}
    with flowing_help():
        tyro.extras.subcommand_cli_from_dict(
            {**VERBS, **chosen}, prog="oat", description=_DESCRIPTION, args=words or ["--help"]
        )
    sys.stdout.flush()  # now, when a full disk under it can still be told


def main(arguments: list[str] | None = None) -> None:
    """Run one verb; a user's mistake ends with one line and status 1, a wrong command line with status 2."""
    interruption = Interruption()
    leave_refusals_to_callers()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        try:
            _run_verb(words)
        finally:
            interruption.ignore() if arguments is None else interruption.restore()
    except (OatError, OSError) as error:
        told = explained(error) if isinstance(error, OSError) and not isinstance(error, OatError) else error
        if told is None:
            raise
        if debug:
            traceback.print_exc()
        Console(stderr=True, soft_wrap=True).print(
            f"[bold red]error:[/] {escape(' '.join(str(told).split()))}", highlight=False
        )
        _abandon_output()
        sys.exit(1)
    except KeyboardInterrupt as interrupt:
        reason = str(interrupt) or "interrupted; nothing is half-written, the same command can be run again"
        Console(stderr=True, soft_wrap=True).print(reason, highlight=False, markup=False)
        _abandon_output()
        leave_within(_TIDYING_SECONDS, interruption.status)
        sys.exit(interruption.status)
