"""Run `oat report`: write one HTML file that shows what lies below a directory and needs nothing else."""

import secrets
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

import oat
from oat.io.atomic import staged_file
from oat.io.extras import import_extra
from oat.report.headline import make_sentences, make_tiles
from oat.report.page_data import PageData, load_page_data
from oat.report.plots import choose_colours
from oat.report.results_folder import ResultsFolder, scan_folder
from oat.report.sections import make_sections
from oat.report.sections.section import Section
from oat.tables.html import to_html


def write_report(root: Path, out: Path, data: Path | None = None) -> None:
    """Write the page of what lies below a directory; it appears when it is complete."""
    plotly = import_extra("plotly.offline", "report")
    folder = scan_folder(root)
    page = render_page(folder, load_page_data(folder, data), plotly.get_plotlyjs())
    with staged_file(out) as staging:
        staging.write_text(page, "utf-8")
    console = Console(soft_wrap=True)
    for problem in folder.problems:
        console.print(f"problem: {problem}", markup=False, highlight=False)
    console.print(f"page: {out} ({len(page.encode()) / 1e6:.1f} MB)", markup=False, highlight=False)


def render_page(folder: ResultsFolder, data: PageData, plotly: str) -> str:
    """Return the whole page, with Plotly's own JavaScript in it."""
    sections = make_sections(data, choose_colours(data.methods()))
    page = (
        _environment()
        .get_template("page.html")
        .render(
            title=folder.root.resolve().name,
            made=f"Made on {datetime.now():%Y-%m-%d} with oat {oat.__version__}",
            plotly=plotly,
            nonce=secrets.token_urlsafe(16),  # browsers run no other script, should one ever get past the escaping
            tiles=make_tiles(data.datasets, data.tokenizers, data.rollouts),
            sentences=list(make_sentences(data.tokenizers, data.rollouts)),
            sections=sections,
            problems=folder.problems,
            missing=data.missing(),
            payload=_payload(sections),
        )
    )
    return str(page)


def _environment() -> Any:
    """Return the Jinja environment of the templates, which escapes everything that comes from files."""
    jinja2 = import_extra("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("oat.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,  # a misspelt name is an error, and not an empty place on the page
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["to_html"] = to_html
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}  # browsers do not read NaN
    return environment


def _payload(sections: list[Section]) -> dict[str, Any]:
    """Return the values that the page's JavaScript draws: all figures, and what single sections need."""
    payload: dict[str, Any] = {
        # Frames are elements of the page itself.
        "figures": [
            asdict(replace(figure, frames=()))
            for section in sections
            for part in section.parts
            for figure in part.figures
        ]
    }
    for section in sections:
        payload |= section.payload()
    return payload
