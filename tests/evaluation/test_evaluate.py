"""`oat eval` in the real simulator: killed and run again it ends with the records of one that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import STATE, Episodes
from oat.data.normalize import Normalizer, action_statistics
from oat.nn.transformer import Width
from oat.policies import AutoregressivePolicy, DiffusionPolicy, Policy
from oat.policies.context import describe_context
from oat.policies.policy import PolicyConfig
from oat.tokenizers import BinTokenizer
from oat.tokenizers.tokenizer import ActionSpace

TASKS = ("reach", "drawer-close")


def save_policy(
    path: Path, kind: str = "autoregressive", state_dim: int = 39, action_dim: int = 4, tasks: tuple[str, ...] = TASKS
) -> Path:
    """A policy with random weights."""
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    actions = generator.uniform(-1, 1, (60, action_dim)).astype(np.float32)
    states = generator.normal(size=(60, state_dim)).astype(np.float32)
    episodes = Episodes.from_arrays(actions, [30, 30], tasks, observations={STATE: states})
    space, context = ActionSpace(8, action_dim), describe_context(episodes, (STATE,))
    normalizer = Normalizer.from_statistics(action_statistics(Windows(episodes, WindowConfig(8, 1))))
    config = PolicyConfig(Width(32, 16), 1)
    policy: Policy
    if kind == "diffusion":
        policy = DiffusionPolicy(context, space, config)
        policy.normalizer = normalizer
    else:
        tokenizer = BinTokenizer(space)
        tokenizer.normalizer = normalizer
        policy = AutoregressivePolicy(context, tokenizer, config)
    policy.save(path)
    return path


def start(policy: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    oat = Path(sys.executable).with_name("oat")
    command = [str(oat), "eval", str(policy), "--sim", "metaworld", "--out", str(out), "--workers", "2", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return out


def read(out: Path) -> dict[str, dict[str, object]]:
    lines = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    kept = [{k: v for k, v in line.items() if not k.startswith("inference")} for line in lines]
    keys = [json.dumps(line["key"], sort_keys=True) for line in kept]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, kept, strict=True))


def test_a_killed_evaluation_continues(tmp_path: Path) -> None:
    policy, plan = save_policy(tmp_path / "policy"), ("--episodes", "2", "--seeds", "2")  # all tasks that it knows
    table = finish(start(policy, tmp_path / "whole", *plan))
    assert "bin K=all" in table
    assert "all tasks" in table
    killed = start(policy, tmp_path / "killed", *plan)
    records, deadline = tmp_path / "killed" / "records.jsonl", time.monotonic() + 200
    while not (records.exists() and records.read_text().count("\n") >= 2):
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert len(read(tmp_path / "killed")) < 8
    finish(start(policy, tmp_path / "killed", *plan))
    whole = read(tmp_path / "whole")
    assert whole == read(tmp_path / "killed")
    assert len(whole) == 8
    assert {r["evaluation_seed"] for r in whole.values()} == {0, 1}
    assert {json.loads(key)["task"] for key in whole} == set(TASKS)
    assert all(r["steps"] == 500 or r["success"] for r in whole.values())


def test_a_diffusion_policy_acts(tmp_path: Path) -> None:
    policy = save_policy(tmp_path / "policy", "diffusion")
    table = finish(start(policy, tmp_path / "out", "--tasks", "reach", "--episodes", "1", "--denoising-steps", "2"))
    assert "dp 2 steps" in table


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tasks", "raech"), "Did you mean 'reach'"),
        (("--tasks", "button-press"), "unknown task 'button-press'"),
        (("--tasks", "reach", "--num-tokens", "4"), "no prefixes"),
    ],
)
def test_mistakes_are_told_before_anything_runs(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    process = start(save_policy(tmp_path / "policy"), tmp_path / "out", *options)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 1
    assert message in errors


def test_a_policy_for_another_robot_is_refused(tmp_path: Path) -> None:
    process = start(save_policy(tmp_path / "policy", action_dim=7), tmp_path / "out", "--tasks", "reach")
    _, errors = process.communicate(timeout=100)
    assert "7-D actions, metaworld takes 4-D" in errors


def test_a_policy_for_other_tasks_is_told_so(tmp_path: Path) -> None:
    process = start(save_policy(tmp_path / "policy", tasks=("fly", "swim")), tmp_path / "out")
    _, errors = process.communicate(timeout=100)
    assert "trained on fly, swim, which are no tasks of metaworld" in " ".join(errors.split())
