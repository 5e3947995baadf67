"""Chunks unlike those a tokenizer was fitted to: their errors are told, and a warning names where they are."""

import warnings
from pathlib import Path

import pytest
import torch

from oat.errors import UnusualActions
from oat.io.training_record import Measures
from oat.tokenizers import OATTokenizer
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.fast import FASTTokenizer
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.measures import ChunkBatch, distortions
from tests.tokenizers.fitted import HORIZON, smooth_chunks

STRANGE = smooth_chunks(4, seed=3) * torch.tensor([1.0, 1.0, 6.0])  # the last dimension goes far beyond its range


@pytest.fixture(params=["oat", "fast"])
def tokenizer(request: pytest.FixtureRequest) -> BaseTokenizer:
    chunks = smooth_chunks(300)
    if request.param == "fast":
        return FASTTokenizer.fit(chunks)
    return OATTokenizer.fit(chunks, preset="tiny", steps=30, progress=False)


def test_errors_are_those_of_the_reconstruction(tokenizer: BaseTokenizer) -> None:
    chunks = smooth_chunks(6)
    valid = torch.ones(6, HORIZON, dtype=torch.bool)
    valid[0, 5:] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusualActions)
        tokens = tokenizer.encode(chunks, valid, measure=True)
    expected = distortions(tokenizer, ChunkBatch(chunks, valid, None))[:, -1]
    assert tokens.errors is not None
    assert torch.allclose(tokens.errors.mean(1), expected, rtol=1e-3, atol=1e-7)
    assert tokens[2:].errors is not None
    assert tokens[:, :1].errors is None
    assert tokenizer.encode(chunks, valid).errors is None


def test_a_warning_names_the_dimension(tokenizer: BaseTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "saved")
    restored = load_tokenizer(tmp_path / "saved")
    with pytest.warns(UnusualActions, match="dimension 2 of model space"):
        restored.encode(STRANGE, measure=True)


def test_a_tokenizer_that_never_recorded_its_usual_error_says_nothing(tokenizer: BaseTokenizer) -> None:
    assert Measures.from_json({"mse": 0.1, "score": 1.0}).usual_error is None  # an older checkpoint's
    tokenizer.training_record = type(tokenizer.training_record)()
    tokenizer.encode(STRANGE, measure=True)
