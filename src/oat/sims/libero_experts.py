"""Demonstrate LIBERO's tasks with scripts that are composed of skills, one for every goal in a task's definition.

A task's definition names what has to be true in the end, such as `(On moka_pot_1 flat_stove_1_cook_region)`. The expert
makes one after another true, asks LIBERO's own predicate whether it is, and begins again with those that are not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oat.errors import SimulatorError
from oat.sims.hand import CLOSED, OPEN, UP, Actions, Manner, Pose, Target, direction, shortest_turn, yaw_of
from oat.sims.libero_grasps import GRASPS, Goal, Scene, around, handle
from oat.sims.skills import (
    Thing,
    approach,
    at_height,
    backed,
    fixed,
    held_at,
    is_held,
    lift,
    pick,
    place,
    push,
    straight_up,
    turn,
    turn_about_vertical,
)

_ROUNDS = 3
_FLAT = np.array([1.0, 1.0, 0.0])


@dataclass(frozen=True)
class Spot:
    """Say where a thing's origin is to be, and from what height it is lowered there."""

    position: Callable[[], np.ndarray]
    height: float
    yaw: float | None = None


def in_basket(scene: Scene, thing: Thing, region: str, index: int) -> Spot:
    """Return a place just above the basket's rim: one half of it for each thing."""
    basket = scene.thing(region.removesuffix("_contain_region"))
    base = thing.position[2] - thing.bottom
    aside = (0.03 if index % 2 else -0.03) + 0.006 * scene.manner.place[index % 3]

    def position() -> np.ndarray:
        middle = scene.site(region) + aside * basket.rotation[:, 0]
        return np.array([*middle[:2], basket.top + 0.01 + base])

    return Spot(position, basket.top + 0.06 + base)


def on_surface(scene: Scene, thing: Thing, region: str, index: int) -> Spot:
    """Return the middle of a plate or of a part of the table, a little off it as hands are."""
    middle = _middle(scene, region)
    base = thing.position[2] - thing.bottom
    off = 0.006 * np.array([scene.manner.place[0], scene.manner.place[1], 0.0])
    return Spot(lambda: middle() + off + base * UP, middle()[2] + 0.1 + base)


def on_stove(scene: Scene, thing: Thing, region: str, index: int) -> Spot:
    """Return a place on the stove's plate: the half of it that is nearer to the robot for the first pot."""
    alone = sum(goal[-1] == region for goal in scene.goals) == 1
    aside = 0.0 if alone else (0.046 if index % 2 else -0.046)
    base = thing.position[2] - thing.bottom
    off = np.array([aside, 0.006 * scene.manner.place[1], base])
    return Spot(lambda: scene.site(region) + off, scene.site(region)[2] + 0.1 + base)


def in_caddy(scene: Scene, thing: Thing, region: str, index: int) -> Spot:
    """Return the middle of a compartment, with the book's broad side along it, from above the walls."""
    name, _, _compartment = region.removesuffix("_contain_region").rpartition("_")
    caddy = scene.thing(name)
    along = yaw_of(caddy.rotation[:, 0])
    nearer = min((along, along + np.pi), key=lambda yaw: abs(shortest_turn(yaw_of(thing.rotation[:, 0]), yaw)))
    middle = (thing.low + thing.high) / 2

    def position() -> np.ndarray:
        beside = turn_about_vertical(nearer) @ middle
        return scene.site(region) - np.array([beside[0], beside[1], 0.04])

    return Spot(position, caddy.top + 0.03 + thing.position[2] - thing.bottom, nearer)


def in_drawer(scene: Scene, thing: Thing, region: str, index: int) -> Spot:
    """Return a place in the open drawer, away from the handles of those above it."""
    front = np.array([0.01 * scene.manner.place[0], -0.02, -0.02])
    return Spot(lambda: scene.site(region) + front, scene.site(region)[2] + 0.075)


def _middle(scene: Scene, name: str) -> Callable[[], np.ndarray]:
    """Return the question where a thing or a region is."""
    if name in scene.env.object_sites_dict:
        return lambda: scene.site(name)
    thing = scene.thing(name)
    return lambda: thing.position


SPOTS: dict[str, Callable[[Scene, Thing, str, int], Spot]] = {
    "basket_contain_region": in_basket,
    "plate": on_surface,
    "living_room_table_plate_right_region": on_surface,
    "flat_stove_cook_region": on_stove,
    "desk_caddy_back_contain_region": in_caddy,
    "desk_caddy_left_contain_region": in_caddy,
    "desk_caddy_right_contain_region": in_caddy,
    "white_cabinet_bottom_region": in_drawer,
}
"""Where things are put, by the kind of the region that a goal names."""


def put(scene: Scene, goal: Goal, index: int) -> Actions:
    """Pick a thing up and place it where a goal wants it to be."""
    _, name, region = goal
    if category(region) in NARROW:
        yield from NARROW[category(region)](scene, goal, index)
        return
    thing = scene.thing(name)
    grasp = GRASPS.get(category(name), around)(scene, thing)
    spot = SPOTS[category(region)](scene, thing, region, index)
    yield from pick(scene.hand, thing, grasp, scene.clear_height(thing, grasp))
    if is_held(scene.hand, thing):
        yield from place(scene.hand, thing, spot.position, spot.height, spot.yaw)


def put_in_microwave(scene: Scene, goal: Goal, index: int) -> Actions:
    """Take a mug by its handle and slide it through the low opening of the microwave."""
    hand = scene.hand
    thing = scene.thing(goal[1])
    oven = scene.thing(goal[2].removesuffix("_heating_region"))
    sideways = -0.038 + 0.01 * scene.manner.place[0]  # the door's hinge is on one side, the buttons on the other
    inside = oven.position + np.array([sideways, -0.055 + 0.005 * scene.manner.place[1], 0.027])
    yield from pick(hand, thing, handle(scene, thing), scene.high)
    if not is_held(hand, thing):
        return
    for depth, up in ((-0.2, 0.02), (0.0, 0.012), (0.0, 0.0)):
        point = inside + np.array([0.0, depth, up])
        yield from hand.go(held_at(hand, thing, fixed(point)), CLOSED, 0.012, 0.1, limit=60)
    yield from hand.stay(12, OPEN)
    here = hand.pose
    yield from hand.go(backed(lambda: here, 0.14), OPEN, 0.03, 0.3, limit=40)
    yield from hand.go(straight_up(hand, oven.top + 0.12), OPEN, 0.04, 0.3, limit=40)


def category(name: str) -> str:
    """Return what kind of thing or region a name is of, which is the name without the thing's number."""
    return "_".join(word for word in name.split("_") if not word.isdigit())


def turn_on(scene: Scene, goal: Goal, index: int) -> Actions:
    """Turn the stove's knob until it is on, and a little further."""
    return _turn_knob(scene, goal, 1.0, lambda: scene.holds(goal) and _angle(scene, goal[1]) > 0.8)


def turn_off(scene: Scene, goal: Goal, index: int) -> Actions:
    """Turn the stove's knob back until it is off."""
    return _turn_knob(scene, goal, -1.0, lambda: scene.holds(goal))


def _turn_knob(scene: Scene, goal: Goal, way: float, done: Callable[[], bool]) -> Actions:
    """Take the stove's knob by its ridge, from above, and turn it one way."""
    button = Thing(scene.env, f"{goal[1]}_button")
    ridge = np.array([0.0, 0.0, 0.033])

    def target() -> Pose:
        return Pose(button.at(ridge), scene.hand.level(yaw_of(button.rotation[:, 0])))

    yield from scene.hand.go(at_height(target, scene.high), OPEN, 0.04, 0.3)
    yield from approach(scene.hand, target)
    yield from turn(scene.hand, target, done, way)
    yield from lift(scene.hand, scene.high)


def _angle(scene: Scene, name: str) -> float:
    """Return the position of the only joint of a thing."""
    (joint,) = scene.env.get_object(name).joints
    return float(scene.env.sim.data.get_joint_qpos(joint))


def close_drawer(scene: Scene, goal: Goal, index: int) -> Actions:
    """Push a drawer shut by its handle, with the hand slanted so that it stays clear of the handles above."""
    hand = scene.hand
    aside = np.array([0.02 * scene.manner.place[1], 0.0, 0.0])
    forward = np.array([0.0, 1.0, -0.9 - 0.2 * scene.manner.place[2]])

    def beyond(distance: float) -> Target:
        # The handle is in front of the region's middle, a little below it.
        offset = np.array([0.0, -0.121 + distance, -0.006]) + aside
        return lambda: Pose(scene.site(goal[1]) + offset, hand.facing(forward, np.array([1.0, 0.0, 0.0])))

    yield from hand.go(at_height(beyond(-0.1), scene.high), CLOSED, 0.04, 0.3)
    yield from hand.go(beyond(-0.07), CLOSED, 0.02, 0.15)
    yield from push(hand, beyond(0.06), lambda: scene.holds(goal), limit=150)
    yield from hand.stay(6, CLOSED)
    yield from hand.go(at_height(beyond(-0.1), scene.high), CLOSED, 0.04, 0.5, limit=30)


def close_microwave(scene: Scene, goal: Goal, index: int) -> Actions:
    """Go round the open door and push it along its arc, with the hand slanted towards it."""
    hand = scene.hand
    hinge = Thing(scene.env, f"{goal[1]}_microdoorroot")
    oven = scene.thing(goal[1])
    along = 0.17 + 0.01 * scene.manner.place[0]
    rotation = hand.facing(np.array([0.35, 0.35, -1.0]), np.array([1.0, -1.0, 0.0]))

    def beyond(distance: float) -> Target:
        def target() -> Pose:
            angle = _angle(scene, goal[1])
            outward = -direction(angle + np.pi / 2)
            point = hinge.position + along * direction(angle) - distance * outward
            return Pose(point * _FLAT + (oven.position[2] + 0.1) * UP, rotation)

        return target

    above = oven.top + 0.15
    yield from hand.go(straight_up(hand, above), CLOSED, 0.04, 0.5, limit=40)
    yield from hand.go(at_height(beyond(-0.12), above), CLOSED, 0.03, 0.3)
    yield from hand.go(beyond(-0.1), CLOSED, 0.03, 0.2)
    yield from push(hand, beyond(0.06), lambda: scene.holds(goal), limit=180)
    yield from hand.stay(6, CLOSED)


CLOSING: dict[str, Callable[[Scene, Goal, int], Actions]] = {
    "white_cabinet_bottom_region": close_drawer,
    "microwave": close_microwave,
}
"""How what can be closed is closed."""


def close(scene: Scene, goal: Goal, index: int) -> Actions:
    """Close a drawer or a door."""
    return CLOSING[category(goal[1])](scene, goal, index)


NARROW: dict[str, Callable[[Scene, Goal, int], Actions]] = {"microwave_heating_region": put_in_microwave}
"""Where things cannot be put from above, and what is done instead."""

MEANS: dict[str, Callable[[Scene, Goal, int], Actions]] = {
    "turnon": turn_on,
    "turnoff": turn_off,
    "in": put,
    "on": put,
    "close": close,
}
"""By what a goal is reached, in the order in which a task's goals are."""


def check_means(task: str, goals: Sequence[Goal]) -> None:
    """Raise `SimulatorError` for a task with a goal that no script reaches."""
    for goal in goals:
        if not _has_means(goal):
            raise SimulatorError(
                f"no script demonstrates {task!r}: none reaches its goal ({' '.join(goal)}); "
                f"there are scripts for {', '.join(MEANS)}, in and on for {', '.join([*SPOTS, *NARROW])}, close for "
                f"{', '.join(CLOSING)}"
            )


def _has_means(goal: Goal) -> bool:
    name, *arguments = goal
    if name in ("in", "on"):
        return category(arguments[-1]) in {**SPOTS, **NARROW}
    return category(arguments[0]) in CLOSING if name == "close" else name in MEANS


def demonstrate(env: Any, manner: Manner) -> Actions:
    """Make the goals of a task true one after another, and rise at the end."""
    scene = Scene(env, manner)
    ranks = list(MEANS)
    goals = sorted(scene.goals, key=lambda goal: ranks.index(goal[0]))
    for _ in range(_ROUNDS):
        for index, goal in enumerate(goals):
            if not scene.holds(goal):
                yield from MEANS[goal[0]](scene, goal, index)
    yield from scene.hand.rise(OPEN)
