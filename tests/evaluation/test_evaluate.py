"""`oat eval` in the real simulator: interrupted, killed and run again it ends with the records of one that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oat.errors import InvalidObservation, InvalidOption, SimulatorError
from oat.evaluation.config import EvalConfig
from oat.evaluation.evaluate import Ledger, evaluate_policy
from tests.evaluation.test_records import record
from tests.evaluation.untrained import TASKS, save_policy


def start(policy: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    oat = Path(sys.executable).with_name("oat")
    command = [str(oat), "eval", str(policy), "--sim", "metaworld", "--out", str(out), "--workers", "2", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"}
    )


def stop(process: subprocess.Popen[str], out: Path, records: int, number: int) -> str:
    """Send a signal once there are so many records; what it said."""
    file, deadline = out / "records.jsonl", time.monotonic() + 200
    while not (file.exists() and file.read_text().count("\n") >= records):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    return process.communicate(timeout=60)[1]


def read(out: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    kept = [{k: v for k, v in line.items() if not k.startswith("inference")} for line in lines]
    keys = [json.dumps(line["key"], sort_keys=True) for line in kept]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, kept, strict=True))


def test_an_evaluation_that_was_stopped_continues(tmp_path: Path) -> None:
    """By Ctrl-C, then by kill -9; the records end up as those of an evaluation that nothing happened to."""
    policy = save_policy(tmp_path / "policy")
    plan = ("--tasks", *TASKS, "--episodes", "2", "--seeds", "2", "--denoising-steps", "1")
    out, errors = start(policy, tmp_path / "whole", *plan).communicate(timeout=300)
    assert "dp 1 steps" in out
    assert "all tasks" in out
    assert "of 8 solved" in errors
    assert "episodes/s" in errors
    stopped = tmp_path / "stopped"
    said = stop(start(policy, stopped, *plan), stopped, 1, signal.SIGINT)
    kept = len(read(stopped))
    assert f"interrupted; {kept} of 8 episodes are recorded in {stopped}, and the same command continues" in said
    assert "Traceback" not in said
    killed = start(policy, stopped, *plan)
    stop(killed, stopped, kept + 2, signal.SIGKILL)
    assert kept + 2 <= len(read(stopped)) < 8
    _wait_for_workers_to_leave(killed.pid)
    last = start(policy, stopped, *plan)
    last.communicate(timeout=300)
    assert last.returncode == 0
    whole = read(tmp_path / "whole")
    assert whole == read(stopped)
    assert len(whole) == 8
    assert {r["evaluation_seed"] for r in whole.values()} == {0, 1}
    assert all(r["steps"] == 500 or r["success"] for r in whole.values())


def _wait_for_workers_to_leave(parent: int) -> None:
    deadline = time.monotonic() + 60
    marker = f"parent_pid={parent},"  # in the command line of every process that multiprocessing spawns
    while any(marker in _command(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:  # gone
        return ""


def test_a_finished_evaluation_is_not_run_again_but_can_be_filmed(tmp_path: Path) -> None:
    policy, out = save_policy(tmp_path / "policy"), tmp_path / "out"
    options: dict[str, Any] = {"tasks": ("drawer-close",), "episodes": 2, "denoising_steps": 1, "workers": 1}
    evaluate_policy(EvalConfig(policy, "metaworld", out, **options))
    before = (out / "records.jsonl").read_bytes()
    assert not (out / "videos").exists()
    evaluate_policy(EvalConfig(policy, "metaworld", out, videos=1, **options))
    (video,) = (out / "videos").iterdir()
    assert video.name.startswith("drawer-close-dp-1_steps-")
    assert video.stat().st_size > 10_000
    written = video.stat().st_mtime_ns
    begin = time.monotonic()
    evaluate_policy(EvalConfig(policy, "metaworld", out, videos=1, **options))
    assert time.monotonic() - begin < 5
    assert video.stat().st_mtime_ns == written
    assert (out / "records.jsonl").read_bytes() == before
    with pytest.raises(InvalidOption, match="not made alike"):  # before anything is run
        evaluate_policy(EvalConfig(policy, "metaworld", out, execute=8, **options))
    with pytest.raises(InvalidOption, match="not made alike"):
        evaluate_policy(EvalConfig(policy, "metaworld", out, split="selection", **options))


def test_a_policy_that_sees_something_else_is_refused(tmp_path: Path) -> None:
    policy = save_policy(tmp_path / "policy", state_dim=20)
    with pytest.raises(InvalidObservation, match=r"observation\.state must be \(1, 2, 20\).*got \(1, 2, 39\)"):
        evaluate_policy(EvalConfig(policy, "metaworld", tmp_path / "out", ("reach",), episodes=1, workers=1))
    assert (tmp_path / "out" / "records.jsonl").read_text() == ""


def test_a_record_is_entered_once_and_after_its_video(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.enter(record(1), b"film")
    path = ledger.video_path(record(1).key)
    assert path.read_bytes() == b"film"
    assert not ledger.enter(record(1), b"again")
    assert path.read_bytes() == b"again"
    assert len(ledger.log.records) == 1
    with pytest.raises(SimulatorError, match="did not repeat as recorded"):
        ledger.enter(replace(record(1), steps=3), b"other")
    assert path.read_bytes() == b"again"
    ledger.log.close()
