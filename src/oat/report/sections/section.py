"""The base class of the page's sections, and the parts that they are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from oat.report.plots import Figure
from oat.tables.table import Table


@dataclass(frozen=True)
class Part:
    """Hold figures and tables under one heading, with what must be known to read them."""

    title: str = ""
    remarks: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    folded_tables: Sequence[Table] = ()
    """Tables that are shown when the reader unfolds them."""
    pictures: Sequence[str] = ()
    """Pictures as data: addresses."""
    picture_text: str = ""
    """Description of the pictures, for those who do not see them."""


@dataclass(frozen=True)
class Section:
    """Describe one section of the page; a section that is more than parts has a class and a template of its own."""

    name: str
    """The anchor that the table of contents links to."""
    heading: str
    introduction: str
    parts: Sequence[Part] = ()
    template: ClassVar[str] = "parts.html"
    """The file in templates/ that shows what comes below the introduction."""

    def payload(self) -> dict[str, Any]:
        """Return the values that the page's JavaScript needs of this section, by the names it knows them by."""
        return {}
