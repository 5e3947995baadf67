"""`oat fit`: nothing on disk is replaced unasked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oat.errors import DatasetExists
from oat.training.config import FitConfig
from oat.training.tokenizers import fit_tokenizer
from tests.datasets import make_episodes, write_npz

FEW = {"steps": 4, "validate_every": 2, "batch_size": 8}


@pytest.mark.parametrize(("kind", "recipe"), [("bin", {}), ("oat", FEW)])
def test_what_was_fitted_is_replaced_only_when_asked(kind: Any, recipe: dict[str, int], tmp_path: Path) -> None:
    data = write_npz(tmp_path / "data.npz", make_episodes(20, tasks=2))
    config = FitConfig.of(data, tmp_path / "run", kind, "tiny", action_horizon=8, **recipe)
    fit_tokenizer(config)
    with pytest.raises(DatasetExists, match="--resume"):
        fit_tokenizer(config)
    fit_tokenizer(replace(config, resume=True))
