"""Name a task of RoboCasa together with the kitchen it is done in: CloseDrawer@layout=1,style=2.

The choice is part of the task's name, so that everything that knows tasks by name keeps kitchens apart without knowing
of them: the command line, workers, records, tables and what is resumed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from oat.errors import InvalidOption, unknown_name
from oat.sims.robocasa_assets import Assets, find_assets

_CHOICE = re.compile(r"(?:layout=(?P<layout>[1-9]\d*|0))?(?:(?:^|(?<=\d),)style=(?P<style>[1-9]\d*|0))?")


@dataclass(frozen=True)
class KitchenTask:
    """Hold a task, and the numbers of its kitchens' layout and style, where they are chosen."""

    name: str
    layout: int | None = None
    style: int | None = None

    @classmethod
    def parse(cls, text: str) -> "KitchenTask":
        """Return the task that a name such as CloseDrawer@layout=1,style=2 or CloseDrawer@style=2 stands for."""
        name, chosen, choice = text.partition("@")
        found = _CHOICE.fullmatch(choice)
        if found is None or (chosen and not choice):
            raise InvalidOption(
                f"{text!r} does not choose a kitchen: write {name}@layout=NUMBER,style=NUMBER, or one of the two"
            )
        numbers = {kind: int(number) for kind, number in found.groupdict().items() if number is not None}
        return cls(name, **numbers)

    def scenes(self, assets: Assets) -> list[tuple[int, int]]:
        """Return the pairs of layout and style in which the task is done; one that is not there is an error."""
        layouts = [] if self.layout is None else [self.layout]
        styles = [] if self.style is None else [self.style]
        return assets.scenes(layouts, styles)

    def check(self, names: Iterable[str]) -> None:
        """Raise `UnknownName` for a task that there is not, and for a kitchen that the assets lack."""
        known = tuple(names)
        if self.name not in known:
            raise unknown_name("robocasa task", self.name, known)
        if self.layout is not None or self.style is not None:
            self.scenes(find_assets())
