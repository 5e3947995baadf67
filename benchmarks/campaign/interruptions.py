"""Commands that are killed, interrupted, or meet a full disk: nothing is lost, and the same command goes on."""

import json
import resource
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.campaign.children import Ended, Interruption, call
from benchmarks.campaign.commands import COMMANDS, Command, prepare, run
from benchmarks.campaign.trial import Broken, Place
from benchmarks.campaign.workshop import item

_PATIENCE = 120.0
_STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
_MOST_KILLS = 8


def kill(name: str, generator: np.random.Generator, place: Place) -> int:
    """Kill a command several times at random moments, then let it finish."""
    command = COMMANDS[name]
    reference = _reference(place, name)
    study = item(place, "study")
    prepare(command, study, place.folder)
    kills = int(generator.integers(1, _MOST_KILLS + 1))
    killed = 0
    for number in range(kills):
        # Continued, a command has less to do.
        moment = float(generator.uniform(0, 0.6 if number else 1.1)) * reference["seconds"]
        # A command that is killed alone must not leave processes behind.
        interruption = Interruption(moment, signal.SIGKILL, bool(generator.integers(2)))
        ended = call(partial(run, command, study, place.folder, number > 0), _PATIENCE, None, interruption).check()
        killed += ended.status == -signal.SIGKILL
        _look(command, place.folder)
        if command.complete(ended.status, ended.output):
            break
    _finish(command, study, place.folder, reference, ended)
    return killed


def interrupt(name: str, generator: np.random.Generator, place: Place) -> int:
    """Send Ctrl-C or SIGTERM at a random moment: one line, the right status, and the same command goes on."""
    command = COMMANDS[name]
    reference = _reference(place, name)
    study = item(place, "study")
    prepare(command, study, place.folder)
    number = (signal.SIGINT, signal.SIGTERM)[generator.integers(2)]
    moment = 0.2 + float(generator.uniform(0, 1)) * reference["seconds"]  # before, it has not begun to listen
    interruption = Interruption(moment, number, number == signal.SIGINT)
    ended = call(partial(run, command, study, place.folder, False), _PATIENCE, None, interruption).check()
    if ended.status not in (0, _STATUS[number]):
        raise Broken(f"{name} ended with {ended.status} after {number.name}: {ended.output[-300:]}")
    _look(command, place.folder)
    _finish(command, study, place.folder, reference, ended)
    return 1


def fill_disk(name: str, generator: np.random.Generator, place: Place) -> int:
    """Let files not grow past a random size: one line says so, nothing half-written appears, and it goes on."""
    command = COMMANDS[name]
    reference = _reference(place, name)
    study = item(place, "study")
    prepare(command, study, place.folder)
    limit = int(10 ** generator.uniform(2, 6))  # below, semaphores cannot be made, which are on no disk
    ended = call(partial(_run_limited, command, study, place.folder, limit), _PATIENCE).check()
    if ended.status not in (0, 1) or (ended.status == 1 and "error: " not in ended.output):
        raise Broken(f"{name} ended with {ended.status} where files have {limit} bytes: {ended.output[-300:]}")
    _look(command, place.folder)
    _finish(command, study, place.folder, reference, ended)
    return 1


def _run_limited(command: Command, study: Path, folder: Path, limit: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    run(command, study, folder, False)


def _look(command: Command, folder: Path) -> None:
    """Check what an interruption left: nothing of it may be half-written."""
    if (folder / "made").exists():
        _succeed(call(partial(_looked, command, folder)), "what was left is not whole")


def _looked(command: Command, folder: Path) -> None:
    command.look(folder)


def _finish(command: Command, study: Path, folder: Path, reference: dict[str, Any], ended: Ended) -> None:
    """Run the command until it has made everything, and compare that with what it makes undisturbed."""
    if not command.complete(ended.status, ended.output):
        last = call(partial(run, command, study, folder, (folder / "made").exists()), _PATIENCE)
        if not command.complete(last.status, last.output):
            _succeed(last, "cannot go on")
    made = _succeed(call(lambda: command.result(folder)), "what was made cannot be read").answer
    if made != reference["result"]:
        raise Broken(f"made {str(made)[:300]}, undisturbed {str(reference['result'])[:300]}")


def _succeed(ended: Ended, complaint: str) -> Ended:
    if ended.status != 0 or ended.hung:
        raise Broken(f"{complaint}: {' | '.join(ended.output.strip().splitlines()[-4:])[-600:]}")
    return ended


def _reference(place: Place, name: str) -> dict[str, Any]:
    """Return how long a command takes undisturbed and what it makes."""
    file = place.workshop / f"reference-{name}.json"
    if not file.exists():
        folder = place.workshop / f"undisturbed-{name}-{time.monotonic_ns()}"
        folder.mkdir(parents=True)
        command = COMMANDS[name]
        study = item(place, "study")
        prepare(command, study, folder)
        ended = _succeed(call(partial(run, command, study, folder, False), _PATIENCE), f"{name} fails undisturbed")
        result = _succeed(call(lambda: command.result(folder)), f"{name} cannot be read").answer
        file.write_text(json.dumps({"seconds": ended.seconds, "result": result}))
    found: dict[str, Any] = json.loads(file.read_text())
    return found
