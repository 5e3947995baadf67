"""Behind `oat report`: one HTML file that shows what lies below a directory and needs nothing else."""

import re
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from oat.io.atomic import staged_file
from oat.io.extras import import_extra
from oat.report.figures import choose_colours
from oat.report.headline import sentences, tiles
from oat.report.loaded import Findings, find
from oat.report.sections import (
    codebook_sections,
    distortion_sections,
    explored,
    origins,
    success_sections,
    training_measures,
)
from oat.report.sources import Material, gather
from oat.tables.table import Table

_NUMBERS = re.compile(r"[\d\s.,…±%+−–—:eE()\[\]-]*")


def write_report(root: Path, out: Path, data: Path | None = None) -> None:
    """Find, measure, draw and write; the page appears when it is complete."""
    plotly = import_extra("plotly.offline", "report")
    found = find(root)
    page = render(found, gather(found, data), plotly.get_plotlyjs())
    with staged_file(out) as staging:
        staging.write_text(page, "utf-8")
    console = Console(soft_wrap=True)
    for problem in found.problems:
        console.print(f"problem: {problem}", markup=False, highlight=False)
    console.print(f"page: {out} ({len(page.encode()) / 1e6:.1f} MB)", markup=False, highlight=False)


def render(found: Findings, material: Material, plotly: str) -> str:
    """The whole page; the template escapes everything that comes from files."""
    jinja2 = import_extra("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("oat", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["numeric_columns"] = numeric_columns
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}  # browsers do not read NaN
    colours = choose_colours(material.methods())
    success = success_sections(material.loops, colours)
    distortion = distortion_sections(material.tokenizers, colours)
    codebook = codebook_sections(material.tokenizers)
    training = training_measures(material.curves, colours)
    drawn = [figure for section in (*success, *distortion, *codebook) for figure in section.figures]
    return str(
        environment.get_template("page.html").render(
            title=found.root.resolve().name,
            made=f"Made on {datetime.now():%Y-%m-%d} with oat {version('oat')}",
            plotly=plotly,
            tiles=tiles(material.datasets, material.tokenizers, material.loops),
            sentences=list(sentences(material.tokenizers, material.loops)),
            material=material,
            success=success,
            distortion=distortion,
            codebook=codebook,
            training=training,
            origins=origins(found, material.datasets),
            problems=found.problems,
            payload={
                "figures": list(map(asdict, drawn)),
                "tokenizers": [explored(each, colours) for each in material.tokenizers],
                "training": [drawing for measures in training.values() for drawing in measures.values()],
            },
        )
    )


def numeric_columns(sheet: Table) -> list[bool]:
    """Which columns hold numbers only, and are aligned to the right."""
    places = range(len(sheet.columns))
    return [all(_NUMBERS.fullmatch(row[place]) for row in sheet.rows) for place in places]
