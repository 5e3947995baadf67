"""Adapt LIBERO's ninety short tasks, libero_90, of which many are single steps of the ten long ones in the same scenes.

Instructions repeat from scene to scene, so a task has LIBERO's own name, such as KITCHEN_SCENE3_turn_on_the_stove, and
policies are told the instruction.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from oat.protocol import Protocol
from oat.sims.libero import Libero, definition_of


class Libero90(Libero):
    """Describe LIBERO's suite libero_90; studies act in ten of its tasks, one in the scene of each long task."""

    name = "libero_90"
    suite: ClassVar[str] = "libero_90"
    # Scripts take 187 steps on average in the slowest of studies' tasks, which have no second step to come to.
    protocol = Protocol("libero_90", max_steps=400, success=Libero.protocol.success)
    study_tasks: ClassVar[tuple[str, ...]] = (
        "LIVING_ROOM_SCENE1_pick_up_the_alphabet_soup_and_put_it_in_the_basket",
        "LIVING_ROOM_SCENE2_pick_up_the_tomato_sauce_and_put_it_in_the_basket",
        "LIVING_ROOM_SCENE2_pick_up_the_butter_and_put_it_in_the_basket",
        "LIVING_ROOM_SCENE5_put_the_white_mug_on_the_left_plate",
        "LIVING_ROOM_SCENE6_put_the_chocolate_pudding_to_the_right_of_the_plate",
        "KITCHEN_SCENE3_turn_on_the_stove",
        "KITCHEN_SCENE4_close_the_bottom_drawer_of_the_cabinet",
        "KITCHEN_SCENE6_close_the_microwave",
        "KITCHEN_SCENE8_turn_off_the_stove",
        "STUDY_SCENE1_pick_up_the_book_and_place_it_in_the_left_compartment_of_the_caddy",
    )

    @staticmethod
    def _name_of(task: Any) -> str:
        return str(task.name)

    @classmethod
    def _task_in(cls, file: Path, attributes: Mapping[str, Any]) -> str:
        return definition_of(attributes).stem
