"""The page's sections in their order: a new one is a function in a file of its own, and a line here."""

from collections.abc import Callable

from oat.report.page_data import PageData
from oat.report.plots import Colours
from oat.report.sections.codebook import codebook_section
from oat.report.sections.depth import depth_section
from oat.report.sections.distortion import distortion_section
from oat.report.sections.origins import origins_section
from oat.report.sections.refinement import refinement_section
from oat.report.sections.section import Section
from oat.report.sections.success import success_section
from oat.report.sections.tables import tables_section
from oat.report.sections.training import training_section
from oat.report.sections.videos import videos_section

SECTIONS: tuple[Callable[[PageData, Colours], Section | None], ...] = (
    refinement_section,
    success_section,
    depth_section,
    videos_section,
    tables_section,
    distortion_section,
    codebook_section,
    training_section,
    origins_section,
)
"""Functions that make the sections, in the page's order; each returns None where there is nothing to show."""


def make_sections(data: PageData, colours: Colours) -> list[Section]:
    """Return the sections that have anything to show."""
    made = (make(data, colours) for make in SECTIONS)
    return [section for section in made if section is not None]
