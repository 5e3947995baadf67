"""The campaign itself: it notices what breaks, goes on after an interruption, and repeats a trial by its number."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from benchmarks.campaign.ledger import Ledger, summarize
from benchmarks.campaign.mangling import edit_json, mangle_bytes
from benchmarks.campaign.trial import Broken, Kind, Outcome, Place, generator_of
from tests.texts import ROOT

_CHILDREN = """
import os, signal, subprocess, sys, time
from benchmarks.campaign.children import Interruption, call
from benchmarks.campaign.trial import Broken

def complaint(ended):
    try:
        ended.check()
    except Broken as error:
        return str(error)
    return "fine"

def orphan():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

kill = Interruption(0.2, signal.SIGKILL, False)
print(call(lambda: [1, 2]).answer)
print(call(lambda: sys.exit(3)).status)
print(call(lambda: time.sleep(60), 10, None, kill).status)
print(complaint(call(lambda: 1 / 0)))
print(complaint(call(lambda: time.sleep(60), 0.2)))
print(complaint(call(lambda: os.abort())))
print(complaint(call(lambda: len(bytes(2**30)), 10, 2**28)))
print(complaint(call(orphan)))
"""


def _fail_odd(target: str, generator: np.random.Generator, place: Place) -> int:
    if generator.integers(2):
        raise Broken(f"{target} broke")
    return 3


def test_children_cannot_harm_and_are_judged() -> None:
    """In a process of its own, because a child is forked from one thread."""
    command = [sys.executable, "-c", _CHILDREN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    answer, status, killed, raw, hung, crashed, memory, orphan = done.stdout.splitlines()
    assert (answer, status, killed) == ("[1, 2]", "3", "-9")
    assert "ZeroDivisionError" in raw
    assert "hung" in hung
    assert crashed == "crashed by SIGABRT"
    assert "MemoryError" in memory
    assert "processes outlived their parent" in orphan


def test_a_trial_is_a_function_of_its_number(tmp_path: Path) -> None:
    kind = Kind(_fail_odd, ("first", "second"), goal=10)
    place = Place(tmp_path, tmp_path)
    twice = [[kind.try_once(n, generator_of("toy", 0, n), place) for n in range(20)] for _ in range(2)]
    assert twice[0] == twice[1]
    assert [outcome.target for outcome in twice[0][:3]] == ["first", "second", "first"]
    assert {outcome.failure for outcome in twice[0]} == {None, "first broke", "second broke"}


def test_the_ledger_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    file = tmp_path / "trials.jsonl"
    with closing(Ledger(file)) as ledger:
        ledger.enter("toy", 0, 0, Outcome("first", 3), 1.0)
        ledger.enter("toy", 0, 1, Outcome("second", 1, "it broke"), 2.0)
    with file.open("a") as cut:
        cut.write('{"kind": "toy"')
    with closing(Ledger(file)) as again:
        again.enter("toy", 0, 2, Outcome("first", 3), 60.0)
    assert (again.total("toy", 0).trials, again.total("toy", 0).attempts) == (3, 7)
    assert again.total("toy", 1).trials == 0
    rows = summarize(again.entries).rows
    assert rows == (("toy", "first", "6", "0", "1.0"), ("toy", "second", "1", "1", "0.0"))
    assert again.entries[1].reproduction == "python -m benchmarks.campaign --only toy --seed 0 --trial 1"


@pytest.mark.parametrize("seed", range(30))
def test_mangling_changes_files(seed: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(seed)
    file = tmp_path / "file.json"
    original = json.dumps({"a": [1, 2, {"b": "c"}], "d": {"e": None}}).encode()
    file.write_bytes(original)
    mangle_bytes(file, generator)
    mangled = file.read_bytes()
    file.write_bytes(original)
    edit_json(file, generator)
    assert json.loads(file.read_text()) != json.loads(original)
    assert mangled != original
