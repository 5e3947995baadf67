"""Simulate a detour: a point in the plane must get around a round obstacle, and experts go left or right by chance.

The mean of the two ways leads into the obstacle, so that a regression fails unless it has learned by heart which start
went which way. Actions are velocities in [-1, 1], states hold the point's position and the goal. Lengths are in metres,
in a square from (-1, -1) to (1, 1). It needs numpy only.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, UInt8

from oat.data.episodes import STATE
from oat.errors import InvalidOption
from oat.interfaces import Demonstration, ExpertConfig, Outcome, Simulator, Split
from oat.protocol import Protocol

RADIUS = 0.4
"""The obstacle's radius; its centre is the middle of the plane."""
GOAL_RADIUS = 0.1
GOAL = np.array([0.0, 0.7])
"""The middle of where goals are."""
FPS = 10.0
MAX_STEPS = 128

_START = np.array([0.0, -0.65])
# How far to the sides points begin, and goals are. Not upwards, too: the fewer numbers tell starts from each other, the
# harder it is to learn by heart from which of them the expert went left.
_START_REACH = np.array([0.1, 0.0])
_GOAL_REACH = np.array([0.05, 0.0])
_STEP = 0.05  # metres per step at full speed
_BACKGROUND = (255, 255, 255)
_OBSTACLE = (120, 120, 120)
_GOAL_COLOUR = (120, 200, 120)
_POINT = (30, 90, 200)
_POINT_RADIUS = 0.04  # only in pictures

Point = Float[np.ndarray, "2"]
Way = Literal["left", "right", "hit", "neither"]
"""How a path ends: past the obstacle on one side, at the obstacle, or before it."""


def way_of(path: Float[np.ndarray, "points 2"]) -> Way:
    """Return on which side a path passes the obstacle, or that it ends there, or does not get that far."""
    if bool((np.linalg.norm(path, axis=1) < RADIUS).any()):
        return "hit"
    beyond = np.flatnonzero(path[:, 1] > 0)
    if not len(beyond):
        return "neither"
    return "left" if path[beyond[0], 0] < 0 else "right"


class DetourEnv:
    """Simulate the task; a point that touches the obstacle stays there, so that the episode has failed."""

    fps = FPS

    def __init__(self) -> None:
        self.position: Point = _START
        self.goal: Point = GOAL
        self._touched = False

    def reset(self, condition: int) -> dict[str, np.ndarray]:
        """Begin an episode with the start and the goal that a generator of this seed draws."""
        random = np.random.default_rng(condition)
        self.position = _START + random.uniform(-_START_REACH, _START_REACH)
        self.goal = GOAL + random.uniform(-_GOAL_REACH, _GOAL_REACH)
        self._touched = False
        return self._observe()

    def step(self, action: Float32[np.ndarray, "2"], observe: bool = True) -> Outcome:
        """Move with a velocity for a tenth of a second; it is a success to be at the goal."""
        if not self._touched:
            self.position = _move(self.position, action)
            self._touched = bool(np.linalg.norm(self.position) < RADIUS)
        success = not self._touched and bool(np.linalg.norm(self.position - self.goal) < GOAL_RADIUS)
        return Outcome(self._observe() if observe else {}, success, float(success))

    def hold(self) -> Float32[np.ndarray, "2"]:
        """Return the velocity of a point that stays where it is."""
        return np.zeros(2, np.float32)

    def _observe(self) -> dict[str, np.ndarray]:
        return {STATE: np.concatenate([self.position, self.goal]).astype(np.float32)}

    def render(self, size: int) -> UInt8[np.ndarray, "size size 3"]:
        """Return a picture from above: obstacle, goal and point."""
        ticks = (np.arange(size) + 0.5) / size * 2 - 1
        across, up = np.meshgrid(ticks, -ticks)
        picture = np.full((size, size, 3), _BACKGROUND, np.uint8)
        for centre, radius, colour in (
            (np.zeros(2), RADIUS, _OBSTACLE),
            (self.goal, GOAL_RADIUS, _GOAL_COLOUR),
            (self.position, _POINT_RADIUS, _POINT),
        ):
            picture[np.hypot(across - centre[0], up - centre[1]) < radius] = colour
        return picture

    def foresee(self, actions: Float32[np.ndarray, "steps 2"]) -> Float[np.ndarray, "points 2"]:
        """Return where the actions would lead in that picture, if there were no obstacle."""
        path = [self.position]
        for action in actions:
            path.append(_move(path[-1], action))
        return (np.stack(path) * (1, -1) + 1) / 2


def _move(position: Point, action: Float[np.ndarray, "2"]) -> Point:
    """Return where a velocity leads within one step; nothing leaves the square."""
    return np.clip(position + _STEP * np.clip(action.astype(np.float64), -1, 1), -1, 1)


@dataclass(frozen=True)
class Manner:
    """Say how an expert goes round the obstacle."""

    side: float
    """-1 goes left, 1 right."""
    swing: float = 0.66
    """How far the path swings out from the straight line."""
    speed: float = 0.67
    """Share of the full speed."""

    @classmethod
    def draw(cls, random: np.random.Generator) -> "Manner":
        """Draw a manner: both sides are equally likely, whatever the start."""
        side = float(random.choice([-1, 1]))
        return cls(side, float(random.uniform(0.61, 0.71)), float(random.uniform(0.6, 0.75)))

    def plan(self, start: Point, goal: Point) -> Float[np.ndarray, "points 2"]:
        """Return where to be after each step: half a wave beside the straight line, at a constant speed."""
        share = np.linspace(0, 1, 500)[:, None]
        curve = start + share * (goal - start) + np.sin(np.pi * share) * (self.side * self.swing, 0)
        walked = np.concatenate([[0], np.linalg.norm(np.diff(curve, axis=0), axis=1).cumsum()])
        stops = np.append(np.arange(1, walked[-1] // (self.speed * _STEP) + 1) * self.speed * _STEP, walked[-1])
        return np.stack([np.interp(stops, walked, axis) for axis in curve.T], axis=1)


class DetourExpert:
    """Demonstrate the task: choose a side by chance, and follow a smooth path until the goal is reached."""

    def __init__(self, config: ExpertConfig) -> None:
        _refuse_cameras(config.cameras)
        self._env = DetourEnv()
        self._noise = config.noise

    def demonstrate(self, seed: int) -> Demonstration:
        """Make one attempt; side, clearance, speed and noise are drawn from the seed, apart from start and goal."""
        random = np.random.default_rng((seed, 1))  # another generator than the start's, which must not tell the side
        return self.follow(seed, Manner.draw(random), random)

    def follow(self, condition: int, manner: Manner, random: np.random.Generator) -> Demonstration:
        """Go round the obstacle in this manner, and correct at every step what noise did at the one before."""
        states = [self._env.reset(condition)[STATE]]
        plan = manner.plan(self._env.position, self._env.goal)
        actions: list[np.ndarray] = []
        success = False
        while not success and len(actions) < MAX_STEPS:
            towards = plan[min(len(actions), len(plan) - 1)] - self._env.position
            wanted = towards / _STEP + self._noise * random.normal(size=2)
            actions.append(np.clip(wanted, -1, 1).astype(np.float32))
            outcome = self._env.step(actions[-1])
            states.append(outcome.observation[STATE])
            success = outcome.success
        return Demonstration(np.stack(actions), {STATE: np.stack(states[:-1])}, success)


def _refuse_cameras(cameras: tuple[str, ...]) -> None:
    if cameras:
        raise InvalidOption(f"detour has no cameras, only states: leave out {' '.join(cameras)}")


class Detour(Simulator):
    """Describe the benchmark, which has one task and a scripted expert with two ways to do it."""

    name = "detour"
    robot_type = "point"
    fps = FPS
    action_names = ("x", "y")
    demonstrator = "scripted"
    protocol = Protocol(
        "detour", max_steps=MAX_STEPS, success="the point is within 0.1 m of the goal and never touched the obstacle"
    )
    hand_position = slice(0, 2)
    tasks = ("detour",)
    version = "detour 1"

    def expert(self, task: str, config: ExpertConfig) -> DetourExpert:
        """Return the expert that goes left or right by chance."""
        self.check_task(task)
        return DetourExpert(config)

    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> DetourEnv:
        """Build the environment, which has no cameras."""
        self.check_task(task)
        _refuse_cameras(cameras)
        return DetourEnv()

    def conditions(self, task: str, split: Split) -> range:
        """Return the seeds of a split; those of demonstrations are below 2^31."""
        return range(2**31, 2**31 + 2**20) if split == "selection" else range(2**31 + 2**30, 2**31 + 2**30 + 2**20)
