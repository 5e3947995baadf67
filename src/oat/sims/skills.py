"""Manipulate things with a robosuite arm: approach, grasp, lift, carry, place, push, pull, turn.

A skill is a generator of actions, so that experts are made by putting skills one after another:

    yield from pick(hand, mug, rim_of(mug), height=1.1)
    yield from place(hand, mug, lambda: plate.position, height=1.1)

Skills look behind the observations: at poses of bodies, and at the geometry that MuJoCo computes contacts with.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oat.sims.hand import CLOSED, OPEN, UP, Actions, Hand, Pose, Target, direction, shortest_turn, yaw_of

_TRIES = 3
_OPENING = 10  # steps that the fingers need from closed to open


class Thing:
    """Tell where a body is, and how large: the box around its collision geometry, in its own frame."""

    def __init__(self, env: Any, body: str) -> None:
        self._data = env.sim.data
        self.body = env.sim.model.body_name2id(body)
        self.low, self.high = _extent(env.sim.model._model, env.sim.data._data, self.body)

    @property
    def position(self) -> np.ndarray:
        """Return the origin, which is what most benchmarks' checks look at."""
        return np.array(self._data.body_xpos[self.body])

    @property
    def rotation(self) -> np.ndarray:
        return np.array(self._data.body_xmat[self.body]).reshape(3, 3)

    @property
    def center(self) -> np.ndarray:
        """Return the middle of the box."""
        return self.at((self.low + self.high) / 2)

    @property
    def top(self) -> float:
        """Return the height of the box's highest point."""
        return float(self.center[2] + self._reach)

    @property
    def bottom(self) -> float:
        """Return the height of the box's lowest point."""
        return float(self.center[2] - self._reach)

    @property
    def _reach(self) -> float:
        return float(np.abs(self.rotation[2]) @ (self.high - self.low) / 2)

    @property
    def narrow_side(self) -> np.ndarray:
        """Return the direction of the shorter one of the sides that lie flat."""
        flat = sorted(range(3), key=lambda axis: abs(self.rotation[2, axis]))[:2]
        return self.rotation[:, min(flat, key=lambda axis: (self.high - self.low)[axis])]

    def at(self, point: np.ndarray) -> np.ndarray:
        """Return where a point of the body's frame is."""
        return self.position + self.rotation @ point


def _extent(model: Any, data: Any, body: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of the box around the collision geometry of a body and of all that is fastened to it."""
    members = {body}
    for child in range(body + 1, model.nbody):
        if model.body_parentid[child] in members:
            members.add(child)
    to_body = data.xmat[body].reshape(3, 3).T
    corners = []
    for geom in range(model.ngeom):
        if model.geom_bodyid[geom] in members and (model.geom_contype[geom] or model.geom_conaffinity[geom]):
            turn = to_body @ data.geom_xmat[geom].reshape(3, 3)
            middle = to_body @ (data.geom_xpos[geom] - data.xpos[body]) + turn @ model.geom_aabb[geom, :3]
            half = np.abs(turn) @ model.geom_aabb[geom, 3:]
            corners += [middle - half, middle + half]
    return np.min(corners, axis=0), np.max(corners, axis=0)


def fixed(point: np.ndarray) -> Callable[[], np.ndarray]:
    """Return the question where something is that stays where it is."""
    return lambda: point


def shifted(target: Target, offset: np.ndarray) -> Target:
    """Return a target that is always so far from another."""
    return lambda: target().moved(offset)


def backed(target: Target, distance: float) -> Target:
    """Return a target from which the hand only has to go forward to reach another."""

    def back() -> Pose:
        pose = target()
        return pose.moved(-distance * pose.rotation[:, 2])

    return back


def at_height(target: Target, height: float) -> Target:
    """Return a target above another, at a height."""

    def above() -> Pose:
        pose = target()
        return Pose(np.array([*pose.position[:2], height]), pose.rotation)

    return above


def straight_up(hand: Hand, height: float) -> Target:
    """Return the target at a height above where the hand is, turned as it is now."""
    rotation = hand.rotation
    return lambda: Pose(np.array([*hand.position[:2], height]), rotation)


def approach(hand: Hand, target: Target, grip: float = OPEN) -> Actions:
    """Come to a target from behind, by a detour, and stop in front of it."""
    hover = hand.manner.hover
    # Half of the detour that is taken at a height: things stand about down there.
    yield from hand.go(shifted(backed(target, hover), 0.5 * hand.manner.detour), grip, 0.025, 0.12)
    yield from hand.go(backed(target, 0.5 * hover), grip, 0.02, 0.1)


def take(hand: Hand, target: Target, steps: int = 12) -> Actions:
    """Approach a target and grasp it; now and then close the fingers too early, rise with nothing and come again."""
    yield from approach(hand, target)
    if hand.fumbles:
        yield from hand.stay(6, CLOSED)
        yield from hand.go(straight_up(hand, hand.position[2] + hand.manner.hover), CLOSED, 0.03)
        yield from release(hand)
        yield from approach(hand, target)
    yield from grasp(hand, target, steps)


def grasp(hand: Hand, target: Target, steps: int = 12) -> Actions:
    """Put the fingers around a target exactly, and close them."""
    yield from hand.home_in(target, OPEN, reached(hand, target, 0.006), 60)
    yield from hand.stay(steps, CLOSED)


def release(hand: Hand) -> Actions:
    """Open the fingers and wait until they are."""
    yield from hand.stay(_OPENING, OPEN)


def lift(hand: Hand, height: float, tolerance: float = 0.03) -> Actions:
    """Raise what is held, or the empty hand, to a height."""
    yield from hand.go(straight_up(hand, height), CLOSED, tolerance)


def pick(hand: Hand, thing: Thing, target: Target, height: float) -> Actions:
    """Go over a thing at a height, approach, grasp and lift it, and begin again if it stayed where it was."""
    for _ in range(_TRIES):
        before = thing.position[2]
        yield from hand.go(shifted(at_height(target, height), hand.manner.detour), OPEN, 0.04, 0.3)
        yield from take(hand, target)
        yield from lift(hand, height)
        if thing.position[2] > before + 0.03:
            return
        yield from release(hand)


def is_held(hand: Hand, thing: Thing) -> bool:
    """Return whether a thing is where the fingers are: they reach into the box around it."""
    inside = thing.rotation.T @ (hand.position - thing.position)
    return bool((inside > thing.low - 0.02).all() and (inside < thing.high + 0.02).all())


def carry(hand: Hand, thing: Thing, spot: Callable[[], np.ndarray], height: float, yaw: float | None = None) -> Actions:
    """Bring a held thing above a spot, with its origin at a height, and turn it if a direction is given."""

    def above(level: float) -> Target:
        return held_at(hand, thing, lambda: np.array([*spot()[:2], level]), yaw)

    yield from hand.go(above(max(height, thing.position[2])), CLOSED, 0.03, 0.1)
    yield from hand.go(above(height), CLOSED, 0.015, 0.1)


def place(hand: Hand, thing: Thing, spot: Callable[[], np.ndarray], height: float, yaw: float | None = None) -> Actions:
    """Carry a held thing to a spot, lower it until it lies or is there, let it go and rise."""
    yield from carry(hand, thing, spot, height, yaw)
    if not is_held(hand, thing):  # it was lost on the way
        return
    yield from hand.home_in(held_at(hand, thing, spot, yaw), CLOSED, _Lying(thing, spot), 60)
    yield from release(hand)
    yield from hand.go(straight_up(hand, hand.position[2] + 0.12), OPEN, 0.03)


def push(hand: Hand, target: Target, done: Callable[[], bool], grip: float = CLOSED, limit: int = 100) -> Actions:
    """Press towards a target that may recede or lie inside of something, until something has happened."""
    for _ in range(limit):
        if done():
            return
        yield hand.toward(target(), hand.manner.gain, grip)


def pull(hand: Hand, target: Target, way: np.ndarray, done: Callable[[], bool], limit: int = 100) -> Actions:
    """Grasp a handle and draw it in a direction until something has happened; let go."""
    yield from grasp(hand, target)
    rotation = hand.rotation
    yield from push(hand, lambda: Pose(hand.position + way, rotation), done, CLOSED, limit)
    yield from release(hand)


def turn(hand: Hand, target: Target, done: Callable[[], bool], way: float, limit: int = 60) -> Actions:
    """Grasp a knob from above and turn it one way (1 is counter-clockwise) until something has happened; let go."""
    yield from grasp(hand, target)
    spot = target().position
    for _ in range(limit):
        if done():
            break
        yield hand.toward(Pose(spot, hand.turned(0.3 * way)), hand.manner.gain, CLOSED)
    yield from release(hand)


def held_at(hand: Hand, thing: Thing, spot: Callable[[], np.ndarray], yaw: float | None = None) -> Target:
    """Return where the hand is to be for the thing that it holds to be at a spot, and turned to a direction."""

    steep = hand.rotation[2, 2] < -0.95  # a hand that points down is levelled, a slanted one stays as it is
    rotation = hand.turned(0.0) if steep else hand.rotation

    def target() -> Pose:
        if yaw is None:
            return Pose(spot() + hand.position - thing.position, rotation)
        turn = shortest_turn(yaw_of(thing.rotation[:, 0]), yaw)
        # The thing hangs beside the hand, and that offset turns with it.
        held = turn_about_vertical(turn) @ (hand.position - thing.position)
        return Pose(spot() + held, hand.turned(turn))

    return target


class _Lying:
    """Tell whether a thing that is being lowered is at its spot, or has come to lie on something before."""

    def __init__(self, thing: Thing, spot: Callable[[], np.ndarray]) -> None:
        self._thing = thing
        self._spot = spot
        self._heights: list[float] = []

    def __call__(self) -> bool:
        self._heights.append(float(self._thing.position[2]))
        stopped = len(self._heights) > 12 and self._heights[-12] - self._heights[-1] < 0.002
        return stopped or bool(self._heights[-1] < self._spot()[2] + 0.003)


def reached(hand: Hand, target: Target, tolerance: float, turn_tolerance: float = 0.06) -> Callable[[], bool]:
    """Return the question whether the hand is at a target."""

    def there() -> bool:
        distance, turn = hand.misses(target())
        return distance < tolerance and turn < turn_tolerance

    return there


def turn_about_vertical(angle: float) -> np.ndarray:
    """Return the matrix of a turn about the vertical."""
    x = direction(angle)
    return np.stack([x, np.cross(UP, x), UP], axis=1)
