"""Two small studies for all tests of experiments: every method, trained for a moment and let act."""

import shutil
from pathlib import Path

import pytest

from oat.cli import main
from tests.shared import made_once

# Where an episode costs nothing: of most tables it matters here that they are made, not what of.
DETOUR_EXPERIMENTS = (
    *(
        "figure-modes",
        "table-ordering",
        "table-policy",
        "table-errors",
        "table-drift",
        "table-horizons",
        "table-codebook",
    ),
)


def _study(factory: pytest.TempPathFactory, sim: str, *names: str) -> Path:
    """Return a copy of the OUT of a finished `oat reproduce`: tests draw and publish into it."""

    def make(out: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OAT_CACHE_DIR", str(factory.mktemp("cache")))
            main(["reproduce", *names, "--sim", sim, "--scale", "smoke", "--out", str(out), "--jobs", "2"])

    return Path(shutil.copytree(made_once(f"{sim}-study", make), factory.mktemp("studies") / sim))


@pytest.fixture(scope="session")
def smoke_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The OUT of table-sim in MetaWorld, from which the paper's figures are drawn."""
    return _study(tmp_path_factory, "metaworld", "table-sim")


@pytest.fixture(scope="session")
def detour_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The OUT of the tables that compare methods with their variants, and of figure-modes."""
    return _study(tmp_path_factory, "detour", *DETOUR_EXPERIMENTS)
