"""Tables survive their files, and no character breaks Markdown or LaTeX."""

from pathlib import Path

import pytest

import oat
from oat.errors import CorruptDataset, InvalidOption
from oat.tables.files import load_tables, save_tables
from oat.tables.html import to_html
from oat.tables.latex import to_latex
from oat.tables.markdown import to_markdown
from oat.tables.table import Table

PACKAGE = Path(oat.__file__).parent
TABLE = Table("success, %", ("method", "a_b"), (("OAT×", "50 ± 3"), ("a|b", "—")), ("50 episodes & 3 seeds",))


def test_a_file_holds_tables(tmp_path: Path) -> None:
    save_tables(tmp_path / "t.json", [TABLE, TABLE])
    assert load_tables(tmp_path / "t.json") == [TABLE, TABLE]


def test_markdown_keeps_columns_apart() -> None:
    lines = to_markdown(TABLE).splitlines()
    assert lines[2:6] == ["| method | a_b |", "| --- | ---: |", "| OAT× | 50 ± 3 |", r"| a\|b | — |"]
    assert lines[-1] == "- 50 episodes & 3 seeds"


def test_latex_escapes() -> None:
    latex = to_latex(TABLE)
    assert r"method & a\_b \\" in latex
    assert r"OAT$\times$ & 50 $\pm$ 3 \\" in latex
    assert r"\caption{success, \%. 50 episodes \& 3 seeds.}" in latex


def test_latex_has_a_command_for_every_sign_that_tables_print() -> None:
    parts = ("tables", "evaluation", "experiments", "robots/trials")
    sources = [path for part in parts for path in (PACKAGE / part).rglob("*.py") if path.name != "latex.py"]
    signs = {sign for path in sources for sign in path.read_text("utf-8") if not sign.isascii()}
    assert {"×", "−", "…", "ρ", "±", "–", "—", "·"} <= signs
    for sign in signs:
        latex = to_latex(Table("t", ("a",), ((f"a {sign}",),)))
        assert latex.isascii(), f"{sign} does not compile"


def test_html_escapes_and_aligns_numbers() -> None:
    html = to_html(Table("<b>", ("method", "a"), (("<i>", "50 ± 3"), ("OAT", "—")), ("a & b",)))
    assert html.count("<b>") == html.count("<i>") == 0
    assert '<th scope="row">&lt;i&gt;</th><td class="number">50 ± 3</td>' in html
    assert '<th scope="col">method</th><th scope="col" class="number">a</th>' in html
    assert "<figcaption><ul><li>a &amp; b</li></ul></figcaption>" in html
    assert "<figcaption>" not in to_html(Table("t", ("a",), (("1",),)))


def test_rows_have_as_many_cells_as_columns() -> None:
    with pytest.raises(InvalidOption, match="2 columns need as many cells"):
        Table("t", ("a", "b"), (("1",),))


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"title": 1}')
    with pytest.raises(CorruptDataset, match="not a file of tables"):
        load_tables(tmp_path / "t.json")
