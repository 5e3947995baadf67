"""Demonstrate four kitchen tasks of RoboCasa with scripts: a drawer, two buttons and a faucet's handle.

The arm does it alone, from where RoboCasa puts the robot. Tilts, heights, distances, speed and pauses are drawn from
the seed. A script looks whether it has succeeded and otherwise begins again, from farther away; now and then the first
try of a button misses, so that demonstrations show how to go on from there.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from oat.sims.hand import CLOSED, UP, Actions, Hand, Manner, Pose, Target
from oat.sims.skills import fixed, push

_STANDING = (0.0, 0.0, 0.0, 0.0, -1.0)  # neither base nor torso moves
_TRIES = 3
_MISS = 0.06  # metres
_PATIENCE = 15  # steps after which a try that misses is given up


class Fixture:
    """Tell where a part of a kitchen fixture is, and which ways are right and back, into the wall, for it."""

    def __init__(self, env: Any, fixture: Any, part: str) -> None:
        self._data = env.sim.data
        self._geom = env.sim.model.geom_name2id(part)
        cosine = np.cos(fixture.rot)
        sine = np.sin(fixture.rot)
        self.right = np.array([cosine, sine, 0.0])
        self.back = np.array([-sine, cosine, 0.0])

    @property
    def position(self) -> np.ndarray:
        return np.array(self._data.geom_xpos[self._geom])

    def at(self, right: float, back: float, up: float) -> np.ndarray:
        """Return a point so far from the part."""
        return self.position + right * self.right + back * self.back + up * UP

    def slanted(self, degrees: float) -> np.ndarray:
        """Return the direction down that is tilted towards the wall, so that the hand leans away from it."""
        angle = np.deg2rad(degrees)
        return np.sin(angle) * self.back - np.cos(angle) * UP


def _facing(hand: Hand, pointing: np.ndarray, closing: np.ndarray, position: Callable[[], np.ndarray]) -> Target:
    """Return a target whose rotation stays what it is now."""
    rotation = hand.facing(pointing, closing)
    return lambda: Pose(position(), rotation)


def _tries(hand: Hand) -> Iterator[tuple[float, int]]:
    """Yield how far from its aim each try of a button goes, and for how many steps it presses at most."""
    if hand.fumbles:
        yield _MISS, _PATIENCE
    for _ in range(_TRIES):
        yield 0.0, 80


def close_drawer(env: Any, manner: Manner) -> Actions:
    """Come down in front of the drawer, on the robot's side of its handle, and push until it is shut."""
    hand = Hand(env, manner, _STANDING)
    front = Fixture(env, env.drawer, f"{env.drawer.name}_door_door")
    side = np.sign((hand.position - np.array(env.drawer.pos)) @ front.right)
    beside = side * (0.1 + 0.02 * manner.grasp[0])
    up = 0.01 + 0.01 * manner.grasp[1]
    slant = front.slanted(40 + 6 * manner.grasp[2])

    def place(back: float, height: float | None = None) -> Target:
        def position() -> np.ndarray:
            point = front.at(beside, back, up)
            return point if height is None else np.array([*point[:2], height])

        return _facing(hand, slant, front.right, position)

    for _ in range(_TRIES):
        yield from hand.go(place(-0.06 - 0.3 * manner.hover, 1.08), CLOSED, 0.04, 0.3, limit=70)
        yield from hand.go(place(-0.13, 1.03), CLOSED, 0.03, 0.3, limit=50)
        yield from hand.go(place(-0.13), CLOSED, 0.03, 0.3, limit=60)
        yield from push(hand, place(0.1), env._check_success, limit=200)
        yield from hand.stay(10, CLOSED)


def turn_off_faucet(env: Any, manner: Manner) -> Actions:
    """Come to the right of the faucet's handle, and sweep it to the left."""
    hand = Hand(env, manner, _STANDING)
    handle = Fixture(env, env.sink, f"{env.sink.name}_handle_main")
    slant = handle.slanted(50 + 5 * manner.grasp[2])
    narrow = UP + 0.8 * handle.back  # the hand's thin side is to the left and right
    up = 0.01 + 0.004 * manner.grasp[1]

    def place(right: float, back: float, up: float) -> Target:
        return _facing(hand, slant, narrow, lambda: handle.at(right, back, up))

    start = hand.position - 0.1 * handle.back
    yield from hand.go(_facing(hand, slant, narrow, fixed(start)), CLOSED, 0.03, 0.6, limit=40)
    for _ in range(_TRIES):
        yield from hand.go(place(0.10, -0.16 - 0.4 * manner.hover, 0.05), CLOSED, 0.02, 0.2, limit=80)
        yield from hand.go(place(0.085, -0.02, 0.02), CLOSED, 0.012, 0.2, limit=60)
        for sweep in range(5):
            yield from push(hand, place(-0.03 * sweep, 0.0, up), env._check_success, limit=15)
        yield from hand.stay(8, CLOSED)
        behind = hand.position - 0.15 * handle.back
        yield from hand.go(_facing(hand, slant, narrow, fixed(behind)), CLOSED, 0.03, 0.6, limit=30)


def start_coffee_machine(env: Any, manner: Manner) -> Actions:
    """Press the coffee machine's button from above, flat under the wall cabinet, and withdraw."""
    hand = Hand(env, manner, _STANDING)
    machine = env.coffee_machine
    button = Fixture(env, machine, f"{machine.naming_prefix}{machine._start_button_names[0]}")
    slant = button.slanted(65 + 3 * manner.grasp[2])
    aside = 0.004 * manner.grasp[0]

    def place(back: float, up: float, right: float = aside) -> Target:
        return _facing(hand, slant, button.right, lambda: button.at(right, back, up))

    for miss, patience in _tries(hand):
        beside = aside + np.copysign(miss, aside)
        yield from hand.go(place(-0.15 - 0.6 * manner.hover, 0.08), CLOSED, 0.02, 0.2, limit=80)
        yield from hand.go(place(-0.01 + 0.003 * manner.grasp[1], 0.06, beside), CLOSED, 0.015, 0.2, limit=60)
        yield from push(hand, place(0.0, -0.03, beside), lambda: machine._turned_on, limit=patience)
        yield from hand.go(place(-0.05, 0.06), CLOSED, 0.03, 0.3, limit=20)
        yield from hand.go(place(-0.3, 0.06), CLOSED, 0.02, 0.3, limit=60)
        yield from hand.stay(6, CLOSED)


def turn_off_microwave(env: Any, manner: Manner) -> Actions:
    """Press the microwave's stop button with the fingers straight ahead, and withdraw."""
    hand = Hand(env, manner, _STANDING)
    button = Fixture(env, env.microwave, f"{env.microwave.naming_prefix}stop_button")
    up = 0.004 * manner.grasp[1]

    def place(back: float, higher: float = 0.0) -> Target:
        # The hand's thin side is to the left and right, where the start button is.
        return _facing(hand, button.back, UP, lambda: button.at(0.0, back, up + higher))

    start = hand.position - 0.1 * button.back
    yield from hand.go(_facing(hand, button.back, UP, fixed(start)), CLOSED, 0.03, 0.8, limit=40)
    for miss, patience in _tries(hand):
        yield from hand.go(place(-0.14 - 0.6 * manner.hover), CLOSED, 0.02, 0.15, limit=100)
        yield from hand.go(place(-0.10, miss), CLOSED, 0.015, 0.12, limit=60)
        yield from push(hand, place(0.03, miss), lambda: not env.microwave._turned_on, limit=patience)
        yield from hand.go(place(-0.3), CLOSED, 0.02, 0.3, limit=60)
        yield from hand.stay(6, CLOSED)


EXPERTS: dict[str, Callable[[Any, Manner], Actions]] = {
    "CloseDrawer": close_drawer,
    "StartCoffeeMachine": start_coffee_machine,
    "TurnOffMicrowave": turn_off_microwave,
    "TurnOffSinkFaucet": turn_off_faucet,
}
