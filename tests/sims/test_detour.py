"""Detour: both ways lead to the goal, the way between them does not, and what is trained on it acts."""

import time
from pathlib import Path

import numpy as np
import pytest

from oat.data.episodes import STATE, open_dataset
from oat.errors import InvalidOption, UnknownName
from oat.evaluation.records import RECORDS_FILE, read_records
from oat.interfaces import Demonstration, Environment, Expert, ExpertConfig, Filmable
from oat.sims import load_simulator
from oat.sims.detour import MAX_STEPS, RADIUS, Detour, DetourEnv, DetourExpert, Manner, Way, way_of
from tests.test_cli import oat

LEFT, RIGHT = Manner(-1), Manner(1)


def demonstrate(condition: int, manner: Manner) -> Demonstration:
    return DetourExpert(ExpertConfig()).follow(condition, manner, np.random.default_rng(0))


def execute(condition: int, actions: np.ndarray) -> tuple[Way, bool]:
    """How the path of these actions ends, and whether it was a success at any time."""
    env = DetourEnv()
    path = [env.reset(condition)[STATE][:2]]
    success = False
    for action in actions:
        outcome = env.step(action)
        path.append(outcome.observation[STATE][:2])
        success = success or outcome.success
    return way_of(np.stack(path)), success


def test_is_a_simulator_with_one_task() -> None:
    simulator = load_simulator("detour")
    assert simulator.tasks == ("detour",)
    assert isinstance(simulator.make("detour"), Environment)
    assert isinstance(simulator.make("detour"), Filmable)
    assert isinstance(simulator.expert("detour", ExpertConfig()), Expert)
    with pytest.raises(UnknownName, match="Did you mean 'detour'"):
        simulator.make("detours")
    with pytest.raises(InvalidOption, match="detour has no cameras"):
        simulator.make("detour", ("top",))


def test_straight_on_is_the_obstacle() -> None:
    """Who touches it stays there: the goal is out of reach for good."""
    env = DetourEnv()
    env.reset(3)
    for _ in range(40):
        outcome = env.step(np.array([0, 1], np.float32))
    held = outcome.observation[STATE]
    assert RADIUS - 0.06 < np.linalg.norm(held[:2]) < RADIUS
    away = env.step(np.array([0, -1], np.float32))
    np.testing.assert_array_equal(away.observation[STATE], held)
    assert not away.success


@pytest.mark.parametrize("condition", range(20))
def test_both_ways_lead_to_the_goal_and_their_mean_does_not(condition: int) -> None:
    """A perfect regression predicts this mean, and so no regression can pass."""
    left = demonstrate(condition, LEFT).actions
    right = demonstrate(condition, RIGHT).actions
    assert execute(condition, left) == ("left", True)
    assert execute(condition, right) == ("right", True)
    both = min(len(left), len(right))
    assert execute(condition, (left[:both] + right[:both]) / 2) == ("hit", False)


def test_a_path_that_gets_nowhere_is_neither() -> None:
    assert execute(0, np.zeros((5, 2), np.float32)) == ("neither", False)


def test_experts_take_both_sides_alike_and_always_arrive() -> None:
    """From starts that say nothing about the side."""
    expert = DetourExpert(ExpertConfig())
    made = [expert.demonstrate(seed) for seed in range(300)]
    assert all(each.success and len(each.actions) < MAX_STEPS / 1.5 for each in made)
    states = [each.observations[STATE] for each in made]
    assert all(len(each) == len(one.actions) for each, one in zip(states, made, strict=True))
    right = np.array([way_of(each[:, :2]) == "right" for each in states])
    assert 0.4 < right.mean() < 0.6
    starts = np.stack([each[0, 0] for each in states])
    assert abs(np.corrcoef(starts, right)[0, 1]) < 0.15


def test_experts_repeat_and_correct_noise() -> None:
    expert = DetourExpert(ExpertConfig(noise=0.2))
    first, second = expert.demonstrate(5), expert.demonstrate(5)
    np.testing.assert_array_equal(first.actions, second.actions)
    assert all(expert.demonstrate(seed).success for seed in range(30))


def test_conditions_are_distinct_and_begin_alike() -> None:
    simulator = Detour()
    selection, reporting = (simulator.conditions("detour", split) for split in ("selection", "reporting"))
    assert 2**31 <= selection[0] < selection[-1] < reporting[0]  # below are the demonstrations'
    env, other = DetourEnv(), DetourEnv()
    begun = {condition: env.reset(condition)[STATE].tobytes() for condition in reporting[:100]}
    assert len(set(begun.values())) == 100
    env.step(np.ones(2, np.float32))
    assert all(other.reset(condition)[STATE].tobytes() == state for condition, state in begun.items())


def test_the_picture_shows_where_actions_lead() -> None:
    env = DetourEnv()
    env.reset(0)
    actions = np.array([[1, 0], [1, 1], [0, 1]], np.float32)
    path = env.foresee(actions)
    assert path.shape == (4, 2)
    for place in (path[0], path[-1]):
        column, row = (200 * place).astype(int)
        red, _, blue = env.render(200)[row, column].astype(int)
        assert blue > red + 100
        for action in actions:
            env.step(action, observe=False)
    assert env.render(64)[32, 32].tolist() == [120, 120, 120]


def test_steps_are_fast() -> None:
    env = DetourEnv()
    env.reset(0)
    begin = time.process_time()
    for _ in range(2000):
        env.step(env.hold())
    assert time.process_time() - begin < 1


def test_what_is_trained_on_it_acts(tmp_path: Path) -> None:
    for command in (
        "collect detour --tasks all --episodes 4 --workers 1 --out data",
        "fit --data data --preset tiny --steps 2 --out oat",
        "train --data data --tokenizer oat --preset tiny --steps 2 --out policy",
        "eval policy --sim detour --episodes 2 --workers 1 --num-tokens 8 --videos 1 --out records",
    ):
        done = oat(*command.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert len(open_dataset(tmp_path / "data")) == 4
    records = read_records(tmp_path / "records" / RECORDS_FILE)
    assert [record.demonstrator for record in records] == ["scripted", "scripted"]
    assert not any(record.crashed for record in records)
    (video,) = (tmp_path / "records" / "videos").iterdir()
    assert video.suffix == ".mp4"
