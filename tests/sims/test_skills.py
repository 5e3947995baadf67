"""Skills: hands turn and go where they are asked to, and things are as large as what MuJoCo computes contacts with."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import groupby

import numpy as np
import pytest

from oat.sims.hand import CLOSED, OPEN, UP, Actions, Hand, Manner, Pose, direction, rotation_vector, shortest_turn
from oat.sims.robomimic import RoboMimicEnv
from oat.sims.skills import Thing, backed, is_held, pick, push, reached, take, turn_about_vertical
from tests.sims.robomimic_files import environment


@lru_cache(maxsize=1)
def lift() -> RoboMimicEnv:
    return environment("lift")


def act(env: RoboMimicEnv, actions: Actions, limit: int = 200) -> int:
    """Take actions until there are no more, and return how many there were."""
    count = 0
    for action in actions:
        env.step(action.astype(np.float32), observe=False)
        count += 1
        assert count < limit
    return count


@pytest.mark.parametrize("angle", [-3.0, -0.4, 0.0, 1e-7, 2.5])
def test_a_rotation_vector_is_axis_times_angle(angle: float) -> None:
    np.testing.assert_allclose(rotation_vector(turn_about_vertical(angle)), angle * UP, atol=1e-12)


def test_the_shortest_turn_knows_what_looks_alike() -> None:
    assert shortest_turn(0.1, 0.3) == pytest.approx(0.2)
    assert shortest_turn(3.0, -3.0) == pytest.approx(2 * np.pi - 6)
    assert shortest_turn(0.0, 3.0, np.pi) == pytest.approx(3 - np.pi)


def test_a_hand_faces_where_it_is_asked_to_by_the_nearer_way() -> None:
    env = lift()
    env.reset(0)
    hand = Hand(env.env, Manner.draw(0))
    for closing in (hand.rotation[:, 0], -hand.rotation[:, 0]):
        rotation = hand.facing(np.array([0.3, 0.0, -1.0]), closing)
        np.testing.assert_allclose(rotation.T @ rotation, np.eye(3), atol=1e-12)
        assert np.linalg.det(rotation) == pytest.approx(1)
        assert rotation[:, 0] @ hand.rotation[:, 0] > 0
    np.testing.assert_allclose(hand.level(0.5)[:, 2], -UP)


def test_a_hand_goes_to_a_pose() -> None:
    env = lift()
    env.reset(0)
    hand = Hand(env.env, Manner.draw(1))
    goal = Pose(hand.position + np.array([0.05, -0.08, -0.03]), hand.turned(0.6))
    assert 5 < act(env, hand.go(lambda: goal, OPEN, 0.01)) < 60
    assert reached(hand, lambda: goal, 0.02, 0.1)()
    behind = backed(lambda: goal, 0.1)()
    np.testing.assert_allclose(behind.position, goal.position + 0.1 * UP)


def test_a_thing_is_as_large_as_its_collision_geometry_and_can_be_picked_up() -> None:
    env = lift()
    env.reset(3)
    cube = Thing(env.env, env.env.cube.root_body)
    half = env.env.sim.model._model.geom("cube_g0").size
    np.testing.assert_allclose([cube.low, cube.high], [-half, half])
    assert cube.top - cube.bottom == pytest.approx(2 * half[2], abs=1e-3)
    hand = Hand(env.env, Manner.draw(2))
    assert not is_held(hand, cube)
    before = cube.position[2]
    act(env, pick(hand, cube, lambda: Pose(cube.position, hand.level(np.arctan2(*cube.rotation[1::-1, 0]))), 1.0))
    assert is_held(hand, cube)
    assert cube.position[2] > before + 0.1


@pytest.mark.parametrize("fumbles", [False, True])
def test_a_hand_that_closes_too_early_opens_again_and_takes_the_thing(fumbles: bool) -> None:
    """What policies do wrong most often is shown, and how to go on from there."""
    env = lift()
    env.reset(3)
    cube = Thing(env.env, env.env.cube.root_body)
    hand = Hand(env.env, replace(Manner.draw(2), fumbles=np.full(8, fumbles)))
    grips = []

    def noted(actions: Actions) -> Iterator[np.ndarray]:
        for action in actions:
            grips.append(action[6])
            yield action

    act(env, noted(take(hand, lambda: Pose(cube.position, hand.level(np.arctan2(*cube.rotation[1::-1, 0]))))))
    assert [grip for grip, _ in groupby(grips)] == ([OPEN, CLOSED, OPEN, CLOSED] if fumbles else [OPEN, CLOSED])
    assert is_held(hand, cube)


def test_pushing_ends_when_something_has_happened() -> None:
    env = lift()
    env.reset(0)
    hand = Hand(env.env, Manner.draw(0))
    start = hand.position
    away = Pose(start + direction(0.0), hand.rotation)
    act(env, push(hand, lambda: away, lambda: bool(hand.position[0] > start[0] + 0.05), CLOSED))
    assert start[0] + 0.05 < hand.position[0] < start[0] + 0.1
