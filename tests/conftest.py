"""Types and shapes are checked at run time in tests (jaxtyping + beartype); caches go to a temporary directory."""

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

import tests.shared
import tests.typecheck  # must be imported before the hook names it, and the hook before anything imports oat

install_import_hook("oat", f"{tests.typecheck.__name__}.check_types")
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _shared(tmp_path_factory: pytest.TempPathFactory) -> None:
    tests.shared.begin_sharing(tmp_path_factory)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OAT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
