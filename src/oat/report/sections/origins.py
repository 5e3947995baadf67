"""The section that says where everything comes from: data sets, and the commands that made the checkpoints."""

from collections.abc import Sequence

from oat.report.checkpoints import Checkpoint
from oat.report.datasets import NamedDataset
from oat.report.page_data import PageData
from oat.report.plots import Colours
from oat.report.sections.section import Part, Section
from oat.tables.table import Table


def origins_section(data: PageData, colours: Colours) -> Section | None:
    """Show a table of the data sets and a table of the checkpoints, where there are any."""
    tables = []
    if data.datasets:
        tables.append(_dataset_table(data.datasets))
    if data.checkpoints:
        tables.append(_checkpoint_table(data.checkpoints))
    if not tables:
        return None
    introduction = "The demonstrations, and the commands that made the checkpoints."
    return Section("origins", "Origins", introduction, [Part(tables=tables)])


def _dataset_table(datasets: Sequence[NamedDataset]) -> Table:
    rows = []
    for dataset in datasets:
        episodes = dataset.episodes
        size = (f"{len(episodes):,}", f"{episodes.num_frames:,}", str(episodes.action_dim))
        rate = f"{episodes.fps:g}" if episodes.fps else "—"
        rows.append((dataset.name, *size, rate, dataset.demonstrator, ", ".join(episodes.tasks)))
    columns = ("data set", "episodes", "steps", "action dim.", "steps/s", "demonstrator", "tasks")
    return Table("Demonstrations", columns, tuple(rows))


def _checkpoint_table(checkpoints: Sequence[Checkpoint]) -> Table:
    rows = tuple((each.name, each.kind, each.seed, each.steps, each.command) for each in checkpoints)
    return Table("Checkpoints", ("name", "kind", "seed", "steps", "made by"), rows)
