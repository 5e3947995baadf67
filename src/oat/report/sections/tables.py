"""The section with the tables and pictures that experiments wrote."""

from oat.report.page_data import PageData
from oat.report.plots import Colours
from oat.report.sections.section import Part, Section


def tables_section(data: PageData, colours: Colours) -> Section | None:
    """Show the tables of every file as they were written, each file's pictures below them."""
    if not data.tables:
        return None
    parts = [
        Part(
            tables=file.tables,
            pictures=file.pictures,
            picture_text=f"Picture of {file.tables[0].title}" if file.tables else "",
        )
        for file in data.tables
    ]
    return Section("tables", "Tables", "As the experiments wrote them.", parts)
