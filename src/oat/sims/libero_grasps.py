"""Say how LIBERO's things are grasped: boxes from above, cups by the rim, pots by their knob, mugs by the handle.

Among grasps that would do, the one is taken that leaves the palm most room beside other things.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oat.sims.hand import UP, Hand, Manner, Pose, Target, yaw_of
from oat.sims.skills import Thing

Goal = Sequence[str]
"""A predicate's name and its arguments."""

_PALM = np.array([0.105, 0.035])  # half of its sides
_PALM_HEIGHT = 0.03  # above the point between the fingertips
_FLAT = np.array([1.0, 1.0, 0.0])
_FINGERS = 0.02  # how far below a thing's top the fingertips hold it


class Scene:
    """Give access to the named things of a LIBERO environment."""

    def __init__(self, env: Any, manner: Manner) -> None:
        self.env = env
        self.hand = Hand(env, manner)
        self.manner = manner
        self.goals: Sequence[Goal] = env.parsed_problem["goal_state"]
        self.high = float(self.hand.position[2])

    def thing(self, name: str) -> Thing:
        """Return a thing by LIBERO's name for it."""
        return Thing(self.env, self.env.get_object(name).root_body)

    def site(self, name: str) -> np.ndarray:
        """Return where the middle of a region is."""
        return np.array(self.env.sim.data.get_site_xpos(name))

    def roomiest(self, thing: Thing, targets: Sequence[Target]) -> Target:
        """Return the first of those grasps of a thing that keep the palm farthest from everything else."""
        others = self._others(thing)
        return max(targets, key=lambda target: min((_room(target(), other) for other in others), default=0.0))

    def clear_height(self, thing: Thing, target: Target) -> float:
        """Return how high a hand with this grasp has to lift a thing for it to pass over all others."""
        tallest = max((other.top for other in self._others(thing)), default=0.0)
        return max(self.high, tallest + 0.03 + float(target().position[2]) - thing.bottom)

    def _others(self, thing: Thing) -> list[Thing]:
        """Return all things that can be moved but one."""
        things = [self.thing(name) for name in self.env.objects_dict]
        return [other for other in things if other.body != thing.body]

    def holds(self, goal: Goal) -> bool:
        """Return what LIBERO says of a goal."""
        return bool(self.env._eval_predicate(list(goal)))


def _room(hand: Pose, other: Thing) -> float:
    """Return how far the palm is from a thing that is high enough to touch it, or a centimetre, if that is less."""
    if other.top < hand.position[2] + _PALM_HEIGHT:
        return 0.01
    offset = np.abs(hand.rotation.T @ (other.center - hand.position))[:2]
    radius = float(np.max((other.high - other.low)[np.argsort(np.abs(other.rotation[2]))[:2]])) / 2
    return min(float(np.max(offset - _PALM)) - radius, 0.01)


def around(scene: Scene, thing: Thing) -> Target:
    """Return the grasp of a box or a can: from above, across its narrow side, where the palm has room."""
    depth = _FINGERS + 0.004 * scene.manner.grasp[0]

    def grasp(swing: float) -> Target:
        def target() -> Pose:
            low = max(thing.top - depth, thing.bottom + 0.008)
            yaw = yaw_of(thing.narrow_side) + swing  # the fingers align it when they close
            return Pose(thing.center * _FLAT + low * UP, scene.hand.level(yaw))

        return target

    return scene.roomiest(thing, [grasp(swing) for swing in (0.2 * scene.manner.grasp[1], 0.5, -0.5)])


def rim(middle: float, radius: float, lean: float = 0.0) -> Callable[[Scene, Thing], Target]:
    """Return the grasp of a cup: one finger inside, one outside, on a side beside the handle.

    `middle` says where along the body's x the cup's axis is, `radius` how far its wall is from there, and `lean` how
    far the hand leans back from what is to its left, such as a cabinet.
    """

    def grasp(scene: Scene, thing: Thing) -> Target:
        near = -1.0 if thing.rotation[0, 1] > 0 else 1.0  # on the robot's side the arm need not stretch
        swing = 0.4 * scene.manner.grasp[2]

        def at(side: float) -> Target:
            def target() -> Pose:
                outward = np.array([np.sin(swing), side * np.cos(swing), 0.0])
                axis = np.array([middle, (thing.low + thing.high)[1] / 2, thing.high[2] - _FINGERS])
                rotation = scene.hand.facing(np.array([0.0, lean, -1.0]), thing.rotation @ outward)
                return Pose(thing.at(axis + radius * outward), rotation)

            return target

        return scene.roomiest(thing, [at(near), at(-near)])

    return grasp


def knob(scene: Scene, thing: Thing) -> Target:
    """Return the grasp of a moka pot: by the knob on its lid, below which it hangs straight."""
    return lambda: Pose(thing.at(np.array([0.0, 0.0, 0.084])), scene.hand.level(yaw_of(thing.rotation[:, 0])))


def handle(scene: Scene, thing: Thing) -> Target:
    """Return the grasp of a mug for a low oven: by its handle, with the hand slanted so that it can reach inside."""
    middle = np.array([0.062, (thing.low + thing.high)[1] / 2, 0.058])

    def target() -> Pose:
        forward = -thing.rotation[:, 0] - (0.8 + 0.1 * scene.manner.grasp[0]) * UP
        return Pose(thing.at(middle), scene.hand.facing(forward, thing.rotation[:, 1]))

    return target


GRASPS: dict[str, Callable[[Scene, Thing], Target]] = {
    "porcelain_mug": rim(0.012, 0.039),
    "white_yellow_mug": rim(-0.0185, 0.042),
    "akita_black_bowl": rim(0.0, 0.047, lean=0.45),
    "moka_pot": knob,
}
"""How things are grasped that are neither boxes nor cans."""
