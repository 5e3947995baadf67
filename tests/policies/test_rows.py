"""Rows do not know of each other: the rule that chooses one's chunk gives the same beside others and alone."""

from typing import Any

import numpy as np
import pytest
import torch

from oat.export.loading import load_runtime
from oat.policies import BasePredictor, Chunk, Denoising, Noise, TokenDecoding
from oat.policies.choosing import CHOOSING_RULES, Previous, make_choosing_rule
from oat.policies.decoding import SampledDecoding
from tests.export.exported import exported
from tests.policies.small import choose_rows, observe
from tests.tokenizers.fitted import DIM

RULES = {
    "oat": tuple(CHOOSING_RULES),
    "quest": ("likelihood", "medoid", "coherent"),
    "diffusion": ("medoid", "coherent", "contrast"),
}
NOISE = Noise((1, 2, 3))
RESTS = [np.full((4, DIM), 0.2), None, np.full((2, DIM), -0.3)]


def _decoding(kind: str, **options: Any) -> SampledDecoding:
    return Denoising(4, **options) if kind == "diffusion" else TokenDecoding(**options)


def _predict(predictor: BasePredictor, decoding: SampledDecoding, rows: list[int]) -> Chunk:
    """Return the chunks of some of three rows, computed with as many others as are missing."""
    noise = Noise(tuple(NOISE.keys[row] for row in rows))
    previous = Previous.of([RESTS[row] for row in rows], DIM)
    return predictor.predict_chunk(choose_rows(observe(3), rows), decoding, noise, pad_to=3, previous=previous)


@pytest.mark.parametrize("commit", [0, 3])
@pytest.mark.parametrize(("kind", "choosing"), [(kind, name) for kind, names in RULES.items() for name in names])
def test_rows_are_independent(kind: str, choosing: str, commit: int) -> None:
    """Compare in PyTorch and exported, where more or fewer actions of the previous chunks are left, or none."""
    policy, folder = exported(kind)
    decoding = _decoding(kind, samples=5, choose=make_choosing_rule(choosing), commit=commit, executed=8)
    for predictor in (policy, load_runtime(folder)):
        together = _predict(predictor, decoding, [0, 1, 2])
        for row in range(3):
            alone = _predict(predictor, decoding, [row])
            torch.testing.assert_close(alone.actions[0], together.actions[row], atol=1e-5, rtol=0)
            if alone.tokens is not None and together.tokens is not None:
                assert alone.tokens.tolist() == [together.tokens.tolist()[row]]
