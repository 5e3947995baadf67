"""Collecting: the data set is a function of the seed, whatever the workers and interruptions."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oat.data.episodes import IMAGES, STATE, Episodes, open_dataset
from oat.data.lerobot import LeRobotWriter
from oat.data.provenance import read_provenance
from oat.errors import DatasetExists, InvalidEpisode, InvalidOption, SimulatorError, UnknownName
from oat.interfaces import Demonstration, ExpertConfig
from oat.io.locks import exclusive
from oat.sims import load_simulator
from oat.sims.collect import AttemptPlan, AttemptStore, _attempts_folder, attempt_seed, collect_demonstrations
from oat.sims.config import CollectConfig
from oat.sims.metaworld import MetaWorld

TASKS = ("button-press", "drawer-open")


def run(out: Path, tasks: tuple[str, ...] = TASKS, episodes: int = 3, workers: int = 1, **options: object) -> Episodes:
    collect_demonstrations(CollectConfig("metaworld", tasks, out, episodes, workers=workers, **options))  # type: ignore[arg-type]
    return open_dataset(out)


def assert_equal(one: Episodes, two: Episodes) -> None:
    np.testing.assert_array_equal(one.actions, two.actions)
    np.testing.assert_array_equal(one.ends, two.ends)
    frames = np.arange(len(one.actions))
    np.testing.assert_array_equal(one.observation(STATE)[frames], two.observation(STATE)[frames])
    assert [one.task(e) for e in range(len(one))] == [two.task(e) for e in range(len(two))]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Episodes:
    return run(tmp_path_factory.mktemp("reference") / "set", workers=1)


def test_the_set_holds_the_successes_asked_for(reference: Episodes) -> None:
    assert [reference.task(e) for e in range(6)] == ["button-press"] * 3 + ["drawer-open"] * 3
    assert reference.fps == 80
    assert reference.action_names == ("x", "y", "z", "gripper")
    assert reference.robot_type == "sawyer"
    (entry,) = read_provenance(Path(reference.source.split(" (")[0]))
    assert entry["expert"] == "scripted"
    assert entry["tasks"]["drawer-open"]["episodes"] == 3


def test_every_episode_is_its_attempt(reference: Episodes) -> None:
    expert = MetaWorld().expert("drawer-open", ExpertConfig())
    demonstration = expert.demonstrate(attempt_seed(0, "drawer-open", 0))
    assert demonstration.success
    np.testing.assert_array_equal(reference.actions[reference.frames(3)], demonstration.actions)


def test_workers_do_not_change_the_set(reference: Episodes, tmp_path: Path) -> None:
    assert_equal(run(tmp_path / "set", workers=2), reference)
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_a_killed_collection_continues(reference: Episodes, tmp_path: Path) -> None:
    """kill -9 in the middle: no data set, no orphans; the same command finishes it and gives the same set."""
    out = tmp_path / "set"
    arguments = ["collect", "metaworld", "--tasks", *TASKS, "--episodes", "3", "--out", str(out), "--workers", "2"]
    command = [sys.executable, "-c", "from oat.cli import main; main()", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (finished := list(tmp_path.glob(".set.collecting-*/*/[0-9]*.npz"))):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not out.exists()
    _wait_until_gone(process.pid)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "wrote 6 episodes" in done.stdout
    assert not finished[0].exists()  # the attempts are removed when the set is complete
    assert_equal(open_dataset(out), reference)


def _wait_until_gone(group: int) -> None:
    """The workers of a killed parent end by themselves."""
    deadline = time.monotonic() + 30
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < deadline, "orphaned workers"
        time.sleep(0.1)


def test_finished_attempts_are_not_run_again(reference: Episodes, tmp_path: Path) -> None:
    """A planted attempt is used as it is; gaps before it are filled."""
    config = CollectConfig("metaworld", ("button-press",), tmp_path / "set", 3, workers=1)
    planted = Demonstration(np.full((2, 4), 0.5, np.float32), {STATE: np.zeros((2, 39), np.float32)}, success=True)
    AttemptStore(_attempts_folder(MetaWorld(), config)).save("button-press", 1, planted)
    collect_demonstrations(config)
    read = open_dataset(tmp_path / "set")
    assert read.lengths[1] == 2
    np.testing.assert_array_equal(read.actions[read.frames(0)], reference.actions[reference.frames(0)])


def test_damaged_attempts_are_made_again(
    reference: Episodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A power failure leaves files empty or cut short, because attempts do not wait for the disk."""
    config = CollectConfig("metaworld", ("button-press",), tmp_path / "set", 3, workers=1)
    store = AttemptStore(_attempts_folder(MetaWorld(), config))
    planted = Demonstration(np.full((2, 4), 0.5, np.float32), {STATE: np.zeros((2, 39), np.float32)}, success=True)
    files = [store.path("button-press", attempt, True) for attempt in range(3)]
    for attempt, file in enumerate(files):
        store.save("button-press", attempt, planted)
        whole = file.read_bytes()
        file.unlink()
        file.write_bytes((b"", whole[: len(whole) // 2], whole.replace(b"\x00\x00\x00?", b"\x00\x00\x01?"))[attempt])
    collect_demonstrations(config)
    read = open_dataset(tmp_path / "set")
    np.testing.assert_array_equal(read.actions, reference.actions[: reference.ends[2]])
    errors = capsys.readouterr().err
    assert all(f"note: {file} is damaged" in errors for file in files)


def test_other_settings_do_not_continue_an_interrupted_collection(tmp_path: Path) -> None:
    folders = {
        _attempts_folder(MetaWorld(), CollectConfig("metaworld", TASKS, tmp_path / "set", 3, **options))
        for options in ({}, {"seed": 1}, {"expert": ExpertConfig(noise=0.1)}, {"expert": ExpertConfig(("corner",))})
    }
    assert len(folders) == 4
    more = CollectConfig("metaworld", ("reach",), tmp_path / "set", 99, workers=3)
    assert _attempts_folder(MetaWorld(), more) in folders  # more episodes or tasks do continue it


def test_two_collectors_do_not_share_an_output(tmp_path: Path) -> None:
    """Not even with other seeds, whose attempts lie in other folders."""
    config = CollectConfig("metaworld", TASKS, tmp_path / "set", 1)
    with (
        exclusive(_attempts_folder(MetaWorld(), config), "collecting"),
        pytest.raises(DatasetExists, match="another process is collecting"),
    ):
        collect_demonstrations(config)
    writer = LeRobotWriter(tmp_path / "set", 80)
    with pytest.raises(DatasetExists, match="another process is writing"):
        collect_demonstrations(replace(config, seed=1))
    writer.discard()
    assert not _attempts_folder(MetaWorld(), replace(config, seed=1)).exists()


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_stops_at_once_and_keeps_what_was_finished(presses: int, tmp_path: Path) -> None:
    arguments = ["collect", "metaworld", "--tasks", "box-close", "--episodes", "40", "--out", str(tmp_path / "set")]
    arguments += ["--cameras", "corner2", "--image-size", "200", "--workers", "2"]
    command = [sys.executable, "-c", "from oat.cli import main; main()", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(".set.collecting-*/*/[0-9]*.npz")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    for _ in range(presses):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert list(tmp_path.glob(".set.collecting-*/*/[0-9]*.npz"))
    _wait_until_gone(process.pid)


def test_a_mistake_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="corner2"):
        run(tmp_path / "set", ("reach",), 1, expert=ExpertConfig(cameras=("corner22",)))
    assert list(tmp_path.iterdir()) == []
    run(tmp_path / "set", ("reach",), 1)
    with pytest.raises(InvalidEpisode, match="the set has"):  # found after one attempt, not after all
        run(tmp_path / "set", ("reach",), 50, seed=1, exists="append", expert=ExpertConfig(cameras=("corner",)))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a").write_text("")
    with pytest.raises(DatasetExists, match="not a LeRobot data set"):
        run(tmp_path / "notes", ("reach",), 1, exists="overwrite")


def test_existing_sets_are_refused_extended_or_replaced(tmp_path: Path) -> None:
    out, one = tmp_path / "set", ("button-press",)
    run(out, one, 1)
    with pytest.raises(DatasetExists, match="say to append"):
        run(out, one, 1)
    with pytest.raises(DatasetExists, match="already holds episodes of seed 0"):
        run(out, one, 1, exists="append")
    assert len(run(out, one, 2, seed=1, exists="append")) == 3
    assert len(read_provenance(out)) == 2
    assert len(run(out, one, 1, seed=2, exists="overwrite")) == 1


def test_cameras_are_recorded_as_video(tmp_path: Path) -> None:
    expert = ExpertConfig(cameras=("corner2", "gripperPOV"), image_size=48)
    read = run(tmp_path / "set", ("button-press",), 2, expert=expert)
    assert set(read.cameras) == {IMAGES + "corner2", IMAGES + "gripperPOV"}
    images = read.observation(IMAGES + "corner2")[read.frames(1)]
    assert images.shape == (read.lengths[1], 48, 48, 3)
    assert images.std() > 10


def test_bad_requests_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'drawer-open'"):
        run(tmp_path / "set", ("drawer-opn",))
    for wrong in ({"episodes": 0}, {"workers": 0}, {"tasks": ()}, {"tasks": ("reach", "reach")}):
        with pytest.raises(InvalidOption):
            run(tmp_path / "set", **wrong)
    assert list(tmp_path.iterdir()) == []


def test_an_expert_that_keeps_failing_is_given_up() -> None:
    config = CollectConfig("metaworld", ("reach",), Path("unused"), episodes=2)
    plan = AttemptPlan(config, {"reach": {}})
    for _ in range(27):
        attempt = plan.next_attempt()
        assert attempt is not None
        plan.finished(*attempt, success=False)
    plan.next_attempt()
    with pytest.raises(SimulatorError, match="succeeded in only 0 of"):
        plan.next_attempt()


@pytest.mark.parametrize("running", [1, 3])
def test_the_first_successes_are_kept_in_any_order_of_finishing(running: int) -> None:
    """Attempts 1 and 2 fail; whichever number run at once, attempts 0, 3 and 4 are kept and 5 is never started."""
    outcome = [True, False, False, True, True, True, True]
    plan = AttemptPlan(CollectConfig("metaworld", ("reach",), Path("unused"), episodes=3), {"reach": {}})
    started: list[tuple[str, int]] = []
    for _ in range(50):
        while len(started) < running and (attempt := plan.next_attempt()):
            started.append(attempt)
        if started:
            task, number = started.pop()  # the newest finishes first
            plan.finished(task, number, outcome[number])
    assert plan.kept("reach") == [0, 3, 4]
    assert max(plan.outcomes["reach"]) == 4


def test_seeds_differ_between_tasks_and_attempts() -> None:
    seeds = {
        attempt_seed(s, task, i) for s in range(3) for task in load_simulator("metaworld").tasks for i in range(20)
    }
    assert len(seeds) == 3 * 50 * 20
