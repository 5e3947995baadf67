"""A table as a value: kept as JSON, printed as Markdown, as LaTeX and in the terminal."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from oat.errors import CorruptDataset, InvalidOption
from oat.io.atomic import staged_file
from oat.tables.terminal import make_table

PICTURE = "picture: "
"""How a note begins that names a file beside the table's folder."""
_LATEX_SIGNS = {
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{
        "×": r"$\times$",
        "±": r"$\pm$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "…": r"\ldots{}",
        "−": "$-$",
        "½": r"\textonehalf{}",
    },
    **{"ρ": r"$\rho$", "Δ": r"$\Delta$", "√": r"$\surd$", "–": "--", "—": "---", "’": "'", "\u00a0": "~"},
    **{"≈": r"$\approx$", "→": r"$\rightarrow$", "✓": r"\checkmark{}", "·": r"$\cdot$", "₁": "$_1$", "²": "$^2$"},
}


@dataclass(frozen=True)
class Sheet:
    """Cells as they are to be read, with what must be known to read them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InvalidOption(f"{self.title}: {len(self.columns)} columns need as many cells, got {row}")

    def markdown(self) -> str:
        """As GitHub shows it; numbers to the right."""
        lines = [_line(self.columns), _line(("---", *("---:",) * (len(self.columns) - 1))), *map(_line, self.rows)]
        notes = [f"- {note}" for note in self.notes]
        return "\n".join((f"### {self.title}", "", *lines, *([""] * bool(notes)), *notes, ""))

    def latex(self) -> str:
        """A float for the booktabs package."""
        body = [" & ".join(map(_latex, row)) + r" \\" for row in self.rows]
        return "\n".join(
            (
                r"\begin{table}[t]",
                r"\centering",
                rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
                r"\toprule",
                " & ".join(map(_latex, self.columns)) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                rf"\caption{{{_latex('. '.join((self.title, *self.notes)))}.}}",
                r"\end{table}",
                "",
            )
        )

    def terminal(self) -> Table:
        table = make_table(escape(self.title), *map(escape, self.columns))
        for row in self.rows:
            table.add_row(*map(escape, row))
        for column, cells in zip(table.columns, zip(self.columns, *self.rows, strict=True), strict=True):
            column.no_wrap = not any(" " in cell for cell in cells)  # where it is narrow, wrap what has words first
        table.caption = escape("\n".join(f"· {note}" for note in self.notes))
        return table


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _latex(text: str) -> str:
    return "".join(_LATEX_SIGNS.get(sign, sign) for sign in text)


def save_sheets(path: Path, sheets: Sequence[Sheet]) -> None:
    """Into a JSON file, whole or not at all."""
    with staged_file(path) as staging:
        staging.write_text(json.dumps([asdict(sheet) for sheet in sheets], indent=1, ensure_ascii=False), "utf-8")


def write_sheets(path: Path, sheets: Sequence[Sheet]) -> None:
    """Beside each other with this path's suffix replaced: .json for the page, .md and .tex to paste."""
    save_sheets(path.with_suffix(".json"), sheets)
    for suffix, text in (
        (".md", "\n".join(sheet.markdown() for sheet in sheets)),
        (".tex", "\n".join(sheet.latex() for sheet in sheets)),
    ):
        with staged_file(path.with_suffix(suffix)) as staging:
            staging.write_text(text, "utf-8")


def load_sheets(path: Path) -> list[Sheet]:
    try:
        described = json.loads(path.read_text("utf-8"))
        return [
            Sheet(each["title"], tuple(each["columns"]), tuple(map(tuple, each["rows"])), tuple(each["notes"]))
            for each in described
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptDataset(f"{path}: not a file of tables ({error})") from error
