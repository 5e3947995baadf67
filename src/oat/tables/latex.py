"""Tables in LaTeX, with the rules of the booktabs package."""

from oat.tables.table import Table

_ESCAPED = {sign: rf"\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
# What our tables print beyond ASCII: pdflatex stops at a sign that it has no command for.
_COMMANDS = {
    "×": r"$\times$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "→": r"$\rightarrow$",
    "−": "$-$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "ρ": r"$\rho$",
    "Δ": r"$\Delta$",
    "₁": "$_1$",
    "²": "$^2$",
    "½": r"\textonehalf{}",
    "✓": r"\checkmark{}",
    "…": r"\ldots{}",
    "–": "--",
    "—": "---",
    "’": "'",
    "\u00a0": "~",
}
_SIGNS = _ESCAPED | _COMMANDS


def to_latex(table: Table) -> str:
    """Return the table as a float, with its title and notes as the caption."""
    caption = ". ".join((table.title, *table.notes))
    lines = (
        r"\begin{table}[t]",
        r"\centering",
        rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        r"\toprule",
        _row(table.columns),
        r"\midrule",
        *map(_row, table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{_escape(caption)}.}}",
        r"\end{table}",
        "",
    )
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    return " & ".join(map(_escape, cells)) + r" \\"


def _escape(text: str) -> str:
    return "".join(_SIGNS.get(sign, sign) for sign in text)
