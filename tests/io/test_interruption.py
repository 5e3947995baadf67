"""Ctrl-C and SIGTERM stop a command wherever they strike, and say nothing after it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oat.cli import main

_IN_A_DESTRUCTOR = """
import os, signal, sys, time
from oat import cli

class Destroyed:
    def __del__(self):
        os.kill(os.getpid(), signal.{number})
        time.sleep(10)

def verb():
    Destroyed()
    for _ in range(1000):
        time.sleep(0.01)

cli.VERBS["verb"] = verb
sys.argv = ["oat", "verb"]
cli.main()
"""
_ON_THE_WAY_OUT = """
import atexit, os, signal, sys, time
from oat import cli

def strike():
    os.kill(os.getpid(), signal.{number})
    time.sleep(0.1)

atexit.register(strike)
cli.VERBS["verb"] = lambda: None
sys.argv = ["oat", "verb"]
cli.main()
"""


def _run(script: str, number: signal.Signals) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script.format(number=number.name)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_is_heard_where_python_swallows_exceptions(number: signal.Signals, status: int) -> None:
    ended = _run(_IN_A_DESTRUCTOR, number)
    assert ended.returncode == status
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("interrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_does_not_disturb_the_way_out(number: signal.Signals) -> None:
    ended = _run(_ON_THE_WAY_OUT, number)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_program_that_calls_a_verb_keeps_its_own_handlers(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), sys.unraisablehook
    with pytest.raises(SystemExit):
        main(["inspect", str(tmp_path / "nothing")])
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), sys.unraisablehook) == before
