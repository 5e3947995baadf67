"""Demonstrate Lift, Can and Square with scripts, so that data exists where the human demonstrations do not.

An expert is a generator of actions that looks at the simulator's own poses. Its episodes differ as people's do:
speed, pauses, detours, where and how it grasps and where it lets go are drawn from the seed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Actions = Iterator[np.ndarray]
Target = Callable[[], tuple[np.ndarray, float]]
"""Where the hand is to be, and how far it still has to turn; asked again at every step."""

OPEN = -1.0
CLOSED = 1.0
_STEP = 0.05  # metres that an action of 1 asks for
_TURN = 0.5  # radians that an action of 1 asks for
_UP = np.array([0.0, 0.0, 1.0])


@dataclass(frozen=True)
class Manner:
    """Hold the numbers by which the performance of one episode differs from others."""

    gain: float
    """The share of the remaining way that an action asks for."""
    top_speed: float
    """The largest component of an action."""
    hover: float
    """How far above an object the hand stops first."""
    detour: np.ndarray
    """How far beside it."""
    pauses: np.ndarray
    """Steps of hesitation at the waypoints."""
    grasp: np.ndarray
    """Three numbers in [-1, 1] that an expert makes its grasp from."""
    place: np.ndarray
    """Three numbers in [-1, 1] that an expert makes its release from."""

    @classmethod
    def draw(cls, seed: int) -> "Manner":
        """Draw the manner of the episode with this seed."""
        random = np.random.default_rng(seed)
        return cls(
            gain=random.uniform(0.9, 1.6),
            top_speed=random.uniform(0.5, 1.0),
            hover=random.uniform(0.05, 0.12),
            detour=np.array([*random.normal(0, 0.015, 2), 0.0]),
            pauses=random.integers(1, 9, 8) * (random.random(8) < 0.4),
            grasp=random.uniform(-1, 1, 3),
            place=random.uniform(-1, 1, 3),
        )


def shortest_turn(angle: float, goal: float, period: float = 2 * np.pi) -> float:
    """Return the turn from an angle to a goal, where angles that differ by a `period` are equal."""
    return (goal - angle + period / 2) % period - period / 2


class Hand:
    """Tell where the gripper is, and generate the actions that bring it elsewhere."""

    def __init__(self, env: Any, manner: Manner) -> None:
        self._env = env
        self._manner = manner
        self._waypoint = 0

    @property
    def position(self) -> np.ndarray:
        return np.array(self._env.sim.data.site_xpos[self._env.robots[0].eef_site_id["right"]])

    @property
    def rotation(self) -> np.ndarray:
        return np.array(self._env.sim.data.site_xmat[self._env.robots[0].eef_site_id["right"]]).reshape(3, 3)

    @property
    def yaw(self) -> float:
        """Return the horizontal direction across which the fingers close."""
        return float(np.arctan2(self.rotation[1, 1], self.rotation[0, 1]))

    def go(self, target: Target, grip: float, tolerance: float, turn_tolerance: float = 0.06) -> Actions:
        """Go to a target swiftly, and then perhaps hesitate for a moment."""
        for _ in range(100):  # a target that cannot be reached must not take the whole episode
            position, turn = target()
            error = position - self.position
            if np.linalg.norm(error) < tolerance and abs(turn) < turn_tolerance:
                break
            yield self._action(self._manner.gain * error, turn, grip, self._manner.top_speed)
        yield from self.stay(int(self._manner.pauses[self._waypoint % len(self._manner.pauses)]), grip)
        self._waypoint += 1

    def home_in(self, target: Target, grip: float, there: Callable[[], bool], limit: int) -> Actions:
        """Go to a target slowly and exactly, as an integral controller does: what remains of the error adds up."""
        missed = np.zeros(3)
        missed_turn = 0.0
        for _ in range(limit):
            if there():
                return
            position, turn = target()
            error = position - self.position
            missed = np.clip(missed + 0.15 * error, -0.02, 0.02)
            missed_turn = float(np.clip(missed_turn + 0.15 * turn, -0.2, 0.2))
            yield self._action(3 * error + 2 * missed, turn + missed_turn, grip, 0.6 * self._manner.top_speed)

    def stay(self, steps: int, grip: float) -> Actions:
        """Stay for some steps, in which only the gripper moves."""
        for _ in range(steps):
            yield self._action(np.zeros(3), 0.0, grip, 1.0)

    def rise(self, grip: float) -> Actions:
        """Rise without end; the episode ends by success or at its time limit."""
        while True:
            yield self._action(self._manner.gain * _STEP * _UP, 0.0, grip, self._manner.top_speed)

    def turn_to(self, yaw: float) -> float:
        """Return the turn to a direction; half a turn makes no difference, as the fingers only change places."""
        return shortest_turn(self.yaw, yaw, np.pi)

    def _action(self, motion: np.ndarray, turn: float, grip: float, top_speed: float) -> np.ndarray:
        """Return the action of a clipped step that keeps the palm level."""
        tilt = np.cross(self.rotation[:, 2], -_UP)
        turns = 1.5 * (tilt + turn * _UP)
        return np.array([*np.clip(motion / _STEP, -top_speed, top_speed), *np.clip(turns / _TURN, -1, 1), grip])


def lift(env: Any, manner: Manner) -> Actions:
    """Take the cube by either pair of faces, a little off its centre, and raise it."""
    hand = Hand(env, manner)
    data = env.sim.data
    cube = env.cube.root_body
    quarter = np.pi / 2 * (manner.grasp[0] > 0)

    def above(height: float) -> Target:
        def target() -> tuple[np.ndarray, float]:
            yaw = _yaw(data.get_body_xmat(cube)[:, 0]) + quarter
            aside = 0.006 * manner.grasp[1] * _direction(yaw)
            return data.get_body_xpos(cube) + aside + height * _UP, hand.turn_to(yaw)

        return target

    yield from hand.go(_beside(above(manner.hover), manner.detour), OPEN, 0.02, 0.1)
    yield from hand.go(above(0.5 * manner.hover), OPEN, 0.02, 0.1)
    yield from hand.go(above(0.006 * manner.grasp[2]), OPEN, 0.012)
    yield from hand.stay(5, CLOSED)
    yield from hand.rise(CLOSED)


def can(env: Any, manner: Manner) -> Actions:
    """Take the can from any side, carry it over the wall and let it go somewhere in its compartment."""
    hand = Hand(env, manner)
    data = env.sim.data
    body = env.objects[env.object_id].root_body
    yaw = hand.yaw + 0.7 * manner.grasp[0]
    near = np.array([0.025 * manner.place[0] - 0.055, 0.03 * manner.place[1] - 0.06, 0])  # the arm reaches no farther
    place = env.target_bin_placements[env.object_id] + near
    carry = 0.28 + 0.04 * manner.place[2]
    release = 0.12 + 0.02 * manner.place[2]

    def above_can(height: float) -> Target:
        return lambda: (data.get_body_xpos(body) + height * _UP, hand.turn_to(yaw))

    def above_place(height: float) -> Target:
        return lambda: (place + height * _UP, hand.turn_to(yaw))

    while np.linalg.norm(data.get_body_xpos(body) - hand.position) > 0.05:
        yield from hand.go(_beside(above_can(manner.hover + 0.03), manner.detour), OPEN, 0.03, 0.2)
        yield from hand.go(above_can(0.01 + 0.012 * manner.grasp[1]), OPEN, 0.012)
        yield from hand.stay(7, CLOSED)
        yield from hand.go(_straight_up(hand, place[2] + carry), CLOSED, 0.04)
    yield from hand.go(above_place(carry), CLOSED, 0.03, 0.3)
    yield from hand.go(above_place(release), CLOSED, 0.02, 0.3)
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
        return _yaw(self.handle - self.position)

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

    def above_handle(height: float) -> Target:
        return lambda: (nut.handle + along * _direction(nut.yaw) + height * _UP, hand.turn_to(nut.yaw))

    def at_handle() -> bool:
        position, turn = above_handle(-0.004)()
        return bool(np.linalg.norm(position - hand.position) < 0.006 and abs(turn) < 0.05)

    while True:
        yield from hand.go(_beside(above_handle(manner.hover), manner.detour), OPEN, 0.025, 0.1)
        yield from hand.go(above_handle(0.5 * manner.hover), OPEN, 0.02)
        yield from hand.home_in(above_handle(-0.004), OPEN, at_handle, 60)
        yield from hand.stay(12, CLOSED)
        yield from hand.go(_straight_up(hand, nut.peg[2] + 0.25), CLOSED, 0.03)
        yield from _thread(hand, nut)


def _thread(hand: Hand, nut: Nut) -> Actions:
    """Bring the nut in the hand over the peg, any of its sides but the one that the arm cannot reach, and down."""
    facing = min((-np.pi / 2, np.pi / 2, np.pi), key=lambda yaw: abs(shortest_turn(nut.yaw, yaw)))

    def over_peg(height: float) -> Target:
        """Return where the hand is to be for the nut to be over the peg."""

        def target() -> tuple[np.ndarray, float]:
            turn = shortest_turn(nut.yaw, facing)
            cosine = np.cos(turn)
            sine = np.sin(turn)
            # The nut hangs beside the hand, and that offset turns with it.
            held = np.array([[cosine, -sine], [sine, cosine]]) @ (hand.position - nut.position)[:2]
            return np.array([*(nut.peg[:2] + held), nut.peg[2] + height]), turn

        return target

    def lower() -> tuple[np.ndarray, float]:
        position, turn = over_peg(0)()
        return np.array([*position[:2], hand.position[2] - 0.03]), turn

    yield from hand.go(over_peg(0.23), CLOSED, 0.03, 0.1)
    while hand.position[2] < nut.position[2] + 0.05:  # it has not slipped out of the hand
        yield from hand.home_in(over_peg(0.135), CLOSED, lambda: nut.fits(facing) and nut.height < 0.15, 80)
        yield from hand.home_in(lower, CLOSED, lambda: nut.height < 0.03, 40)
        if nut.height < 0.09:
            yield from hand.stay(6, OPEN)
            yield from hand.go(_straight_up(hand, nut.peg[2] + 0.2), OPEN, 0.03)
            return


def _yaw(direction: np.ndarray) -> float:
    return float(np.arctan2(direction[1], direction[0]))


def _direction(yaw: float) -> np.ndarray:
    return np.array([np.cos(yaw), np.sin(yaw), 0.0])


def _beside(target: Target, detour: np.ndarray) -> Target:
    def shifted() -> tuple[np.ndarray, float]:
        position, turn = target()
        return position + detour, turn

    return shifted


def _straight_up(hand: Hand, height: float) -> Target:
    return lambda: (np.array([*hand.position[:2], height]), 0.0)


EXPERTS: dict[str, Callable[[Any, Manner], Actions]] = {"lift": lift, "can": can, "square": square}
