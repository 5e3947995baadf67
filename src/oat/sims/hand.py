"""Move a robosuite arm's hand: the poses it can be asked to take, and the actions that bring it there.

An expert is a generator of actions that looks at the simulator's own poses. Its episodes differ as those of one
practised person do: detours, hesitation, where and how it grasps, where it lets go and whether it first closes the
fingers too early are drawn from the seed. Its speed varies little: nothing that is observed at the beginning tells it,
so that of hands of all speeds a policy learns the mean, whose fingers close before it has arrived.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Actions = Iterator[np.ndarray]

OPEN = -1.0
CLOSED = 1.0
UP = np.array([0.0, 0.0, 1.0])
_STEP = 0.05  # metres that an action of 1 asks for
_TURN = 0.5  # radians that an action of 1 asks for


@dataclass(frozen=True)
class Manner:
    """Hold the numbers by which the performance of one episode differs from others."""

    gain: float
    """The share of the remaining way that an action asks for."""
    top_speed: float
    """The largest component of an action."""
    hover: float
    """How far from an object the hand stops first."""
    detour: np.ndarray
    """How far beside it."""
    pauses: np.ndarray
    """Steps of hesitation at the waypoints."""
    grasp: np.ndarray
    """Three numbers in [-1, 1] that an expert makes its grasp from."""
    place: np.ndarray
    """Three numbers in [-1, 1] that an expert makes its release from."""
    fumbles: np.ndarray
    """Whether the fingers first close too early, at each of the waypoints where something is to be grasped."""

    @classmethod
    def draw(cls, seed: int) -> "Manner":
        """Draw the manner of the episode with this seed."""
        random = np.random.default_rng(seed)
        return cls(
            gain=random.uniform(1.0, 1.3),
            top_speed=random.uniform(0.5, 0.7),
            hover=random.uniform(0.06, 0.10),
            detour=np.array([*random.normal(0, 0.03, 2), 0.0]),
            pauses=random.integers(1, 5, 8) * (random.random(8) < 0.15),
            grasp=random.uniform(-1, 1, 3),
            place=random.uniform(-1, 1, 3),
            fumbles=random.random(8) < 0.3,
        )


@dataclass(frozen=True)
class Pose:
    """Hold where the point between the fingertips is, and how the hand is turned."""

    position: np.ndarray
    rotation: np.ndarray
    """As columns: the direction in which the fingers close, the one beside it, and the one in which they point."""

    def moved(self, offset: np.ndarray) -> "Pose":
        """Return the pose elsewhere."""
        return Pose(self.position + offset, self.rotation)


Target = Callable[[], Pose]
"""Where the hand is to be; asked again at every step, because things move."""


class Hand:
    """Tell where the gripper is, and generate the actions that bring it elsewhere."""

    def __init__(self, env: Any, manner: Manner, rest: Sequence[float] = ()) -> None:
        """Take over the first arm of a robosuite environment, in whose actions `rest` follows on the gripper."""
        self.manner = manner
        self._data = env.sim.data
        self._site = env.robots[0].eef_site_id["right"]
        self._controller = env.robots[0].part_controllers["right"]
        self._rest = rest
        self._waypoint = 0

    @property
    def position(self) -> np.ndarray:
        return np.array(self._data.site_xpos[self._site])

    @property
    def rotation(self) -> np.ndarray:
        return np.array(self._data.site_xmat[self._site]).reshape(3, 3)

    @property
    def pose(self) -> Pose:
        return Pose(self.position, self.rotation)

    @property
    def yaw(self) -> float:
        """Return the horizontal direction in which the fingers close."""
        return yaw_of(self.rotation[:, 0])

    @property
    def fumbles(self) -> bool:
        """Return whether the fingers close too early at the waypoint where the hand is."""
        return bool(self.manner.fumbles[self._waypoint % len(self.manner.fumbles)])

    def facing(self, pointing: np.ndarray, closing: np.ndarray) -> np.ndarray:
        """Return the rotation in which the fingers point one way and close in another.

        Half a turn makes no difference, as the fingers only change places: the nearer of the two is returned.
        """
        forward = pointing / np.linalg.norm(pointing)
        level = closing - forward * (closing @ forward)
        sideways = level / np.linalg.norm(level)
        nearer = sideways if sideways @ self.rotation[:, 0] >= 0 else -sideways
        return np.stack([nearer, np.cross(forward, nearer), forward], axis=1)

    def level(self, yaw: float) -> np.ndarray:
        """Return the rotation in which the fingers point down and close in a horizontal direction."""
        return self.facing(-UP, direction(yaw))

    def turned(self, angle: float) -> np.ndarray:
        """Return the rotation with the fingers down, which is an angle about the vertical away from now."""
        closing = direction(self.yaw + angle)
        return np.stack([closing, np.cross(-UP, closing), -UP], axis=1)

    def misses(self, target: Pose) -> tuple[float, float]:
        """Return how far the hand is from a pose, in metres and radians."""
        turn = rotation_vector(target.rotation @ self.rotation.T)
        return float(np.linalg.norm(target.position - self.position)), float(np.linalg.norm(turn))

    def go(
        self, target: Target, grip: float, tolerance: float, turn_tolerance: float = 0.06, limit: int = 100
    ) -> Actions:
        """Go to a target swiftly, and then perhaps hesitate for a moment."""
        for _ in range(limit):  # a target that cannot be reached must not take the whole episode
            goal = target()
            distance, turn = self.misses(goal)
            if distance < tolerance and turn < turn_tolerance:
                break
            yield self.toward(goal, self.manner.gain, grip)
        yield from self.stay(int(self.manner.pauses[self._waypoint % len(self.manner.pauses)]), grip)
        self._waypoint += 1

    def home_in(self, target: Target, grip: float, there: Callable[[], bool], limit: int) -> Actions:
        """Go to a target slowly and exactly, as an integral controller does: what remains of the error adds up."""
        missed = np.zeros(3)
        missed_turn = np.zeros(3)
        for _ in range(limit):
            if there():
                return
            goal = target()
            error = goal.position - self.position
            turn = rotation_vector(goal.rotation @ self.rotation.T)
            missed = np.clip(missed + 0.15 * error, -0.02, 0.02)
            missed_turn = np.clip(missed_turn + 0.15 * turn, -0.2, 0.2)
            yield self._action(3 * error + 2 * missed, turn + missed_turn, grip, 0.6 * self.manner.top_speed)

    def stay(self, steps: int, grip: float) -> Actions:
        """Stay for some steps, in which only the gripper moves."""
        for _ in range(steps):
            yield self._action(np.zeros(3), np.zeros(3), grip, 1.0)

    def drift(self, heading: np.ndarray, grip: float) -> Actions:
        """Move in a direction without end; the episode ends by success or at its time limit."""
        upright = self.rotation
        while True:
            goal = Pose(self.position + self.manner.gain * _STEP * heading, upright)
            yield self.toward(goal, 1.0, grip)

    def rise(self, grip: float) -> Actions:
        """Rise without end."""
        return self.drift(UP, grip)

    def toward(self, goal: Pose, gain: float, grip: float) -> np.ndarray:
        """Return the action that goes a share of the remaining way to a pose."""
        turn = rotation_vector(goal.rotation @ self.rotation.T)
        return self._action(gain * (goal.position - self.position), turn, grip, self.manner.top_speed)

    def _action(self, motion: np.ndarray, turn: np.ndarray, grip: float, top_speed: float) -> np.ndarray:
        """Return the action of a clipped step and turn, which are given in the world's frame."""
        in_world = self._controller.input_ref_frame == "world"
        to_robot = np.eye(3) if in_world else np.array(self._controller.origin_ori).T
        step = np.clip(to_robot @ motion / _STEP, -top_speed, top_speed)
        turns = np.clip(1.5 * to_robot @ turn / _TURN, -1, 1)
        return np.array([*step, *turns, grip, *self._rest])


def rotation_vector(rotation: np.ndarray) -> np.ndarray:
    """Return the axis of a rotation, as long as its angle in radians."""
    skew = np.array([rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]])
    sine = np.linalg.norm(skew) / 2
    angle = np.arctan2(sine, (np.trace(rotation) - 1) / 2)
    return skew / 2 * (angle / sine if sine > 1e-9 else 1.0)


def shortest_turn(angle: float, goal: float, period: float = 2 * np.pi) -> float:
    """Return the turn from an angle to a goal, where angles that differ by a `period` are equal."""
    return (goal - angle + period / 2) % period - period / 2


def yaw_of(vector: np.ndarray) -> float:
    """Return the horizontal direction of a vector as an angle."""
    return float(np.arctan2(vector[1], vector[0]))


def direction(yaw: float) -> np.ndarray:
    """Return the horizontal unit vector of an angle."""
    return np.array([np.cos(yaw), np.sin(yaw), 0.0])
