"""Malformed decodes per 500 episodes, from the records of the published study."""

from oat.experiments.malformed_episodes import malformed_table
from oat.experiments.study.scales import SCALES
from oat.experiments.study.study import Study
from oat.tables.files import load_tables
from tests.texts import ROOT

FOLDER = ROOT / "results/cpu/metaworld"


def test_the_published_table_is_what_its_records_say() -> None:
    table = malformed_table(Study(SCALES["cpu"], "metaworld", FOLDER))
    rates = {row[0]: row[1:4] for row in table.rows}
    assert rates.pop("FAST") == ("200", "200", "500")
    assert rates == dict.fromkeys(("OAT_1", "OAT_2", "OAT_4", "OAT_8"), ("200", "0", "0"))
    assert "171 of 500 LIBERO-10 episodes" in table.notes[0]
    *_, published = load_tables(FOLDER / "tables/figure-fast-failure.json")
    assert published.rows == table.rows
