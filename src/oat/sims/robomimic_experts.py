"""Demonstrate Lift, Can and Square with scripts, so that data exists where the human demonstrations do not."""

from collections.abc import Callable
from typing import Any

import numpy as np

from oat.sims.hand import CLOSED, OPEN, UP, Actions, Hand, Manner, Pose, Target, direction, shortest_turn, yaw_of
from oat.sims.skills import Thing, pick, straight_up, take, turn_about_vertical


def lift(env: Any, manner: Manner) -> Actions:
    """Take the cube by the faces that need the smaller turn, a little off its centre, and raise it."""
    hand = Hand(env, manner)
    cube = Thing(env, env.cube.root_body)

    def middle() -> Pose:
        yaw = hand.yaw + shortest_turn(hand.yaw, yaw_of(cube.rotation[:, 0]), period=np.pi / 2)
        aside = 0.006 * manner.grasp[1] * direction(yaw)
        return Pose(cube.position + aside + 0.006 * manner.grasp[2] * UP, hand.level(yaw))

    yield from pick(hand, cube, middle, cube.position[2] + 0.15)


def can(env: Any, manner: Manner) -> Actions:
    """Take the can from any side, carry it over the wall and let it go somewhere in its compartment."""
    hand = Hand(env, manner)
    drink = Thing(env, env.objects[env.object_id].root_body)
    yaw = hand.yaw + 0.7 * manner.grasp[0]
    near = np.array([0.025 * manner.place[0] - 0.055, 0.03 * manner.place[1] - 0.06, 0])  # the arm reaches no farther
    compartment = env.target_bin_placements[env.object_id] + near
    high = 0.28 + 0.04 * manner.place[2]
    release = 0.12 + 0.02 * manner.place[2]

    def around() -> Pose:
        return Pose(drink.position + (0.01 + 0.012 * manner.grasp[1]) * UP, hand.level(yaw))

    def above(height: float) -> Target:
        return lambda: Pose(compartment + height * UP, hand.level(yaw))

    yield from pick(hand, drink, around, compartment[2] + high)
    yield from hand.go(above(high), CLOSED, 0.03, 0.3)
    yield from hand.go(above(release), CLOSED, 0.02, 0.3, limit=30)  # the floor may stop it before
    yield from hand.stay(6, OPEN)
    yield from hand.rise(OPEN)


class Nut:
    """Tell where the nut of Square and its peg are."""

    def __init__(self, env: Any) -> None:
        self._data = env.sim.data
        self._nut = env.nuts[0]
        self._peg = env.peg1_body_id

    @property
    def position(self) -> np.ndarray:
        return np.array(self._data.get_body_xpos(self._nut.root_body))

    @property
    def handle(self) -> np.ndarray:
        return np.array(self._data.get_site_xpos(self._nut.important_sites["handle"]))

    @property
    def yaw(self) -> float:
        """Return the horizontal direction of the handle."""
        return yaw_of(self.handle - self.position)

    @property
    def peg(self) -> np.ndarray:
        return np.array(self._data.body_xpos[self._peg])

    @property
    def height(self) -> float:
        """Return how far the nut is above the peg's middle."""
        return float(self.position[2] - self.peg[2])

    def fits(self, facing: float) -> bool:
        """Return whether the nut, with its handle in this direction, is so exactly above the peg that it slides on."""
        beside = np.linalg.norm((self.position - self.peg)[:2])
        return bool(beside < 0.002 and abs(shortest_turn(self.yaw, facing)) < 0.02)


def square(env: Any, manner: Manner) -> Actions:
    """Take the nut by its handle, turn it to the peg, lower it and push it down; begin again if it slips away."""
    hand = Hand(env, manner)
    nut = Nut(env)
    along = 0.008 * manner.grasp[0]

    def handle() -> Pose:
        return Pose(nut.handle + along * direction(nut.yaw) - 0.004 * UP, hand.level(nut.yaw + np.pi / 2))

    while True:
        yield from take(hand, handle)
        yield from hand.go(straight_up(hand, nut.peg[2] + 0.25), CLOSED, 0.03)
        yield from _thread(hand, nut)


def _thread(hand: Hand, nut: Nut) -> Actions:
    """Bring the nut in the hand over the peg, any of its sides but the one that the arm cannot reach, and down."""
    facing = min((-np.pi / 2, np.pi / 2, np.pi), key=lambda yaw: abs(shortest_turn(nut.yaw, yaw)))

    def over_peg(height: float) -> Target:
        """Return where the hand is to be for the nut to be over the peg."""

        def target() -> Pose:
            turn = shortest_turn(nut.yaw, facing)
            # The nut hangs beside the hand, and that offset turns with it.
            held = turn_about_vertical(turn) @ (hand.position - nut.position)
            return Pose(np.array([*(nut.peg + held)[:2], nut.peg[2] + height]), hand.turned(turn))

        return target

    def lower() -> Pose:
        above = over_peg(0)()
        return Pose(np.array([*above.position[:2], hand.position[2] - 0.03]), above.rotation)

    yield from hand.go(over_peg(0.23), CLOSED, 0.03, 0.1)
    while hand.position[2] < nut.position[2] + 0.05:  # it has not slipped out of the hand
        yield from hand.home_in(over_peg(0.135), CLOSED, lambda: nut.fits(facing) and nut.height < 0.15, 80)
        yield from hand.home_in(lower, CLOSED, lambda: nut.height < 0.03, 40)
        if nut.height < 0.09:
            yield from hand.stay(6, OPEN)
            yield from hand.go(straight_up(hand, nut.peg[2] + 0.2), OPEN, 0.03)
            return


EXPERTS: dict[str, Callable[[Any, Manner], Actions]] = {"lift": lift, "can": can, "square": square}
