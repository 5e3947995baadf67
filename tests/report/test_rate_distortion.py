"""Rate–distortion curves: bits are counted by what ids hold, and one sentence says who is ahead where."""

import math

import pytest
import torch

from oat.report.inspect_tokenizer import _rmse_text
from oat.report.rate_distortion import RateCurve, RatePoint, who_leads
from oat.tokenizers.measures import cumulative_entropy
from oat.tokenizers.tokens import Tokens


def curve(name: str, *points: tuple[float, float]) -> RateCurve:
    return RateCurve(name, tuple(RatePoint("1", 2 * bits, bits, mse) for bits, mse in points))


def test_who_is_ahead_where() -> None:
    coarse = curve("OAT", (10, 0.1), (40, 0.01))
    fine = curve("FAST", (100, 0.005), (400, 0.0001))
    told = who_leads([coarse, fine])
    assert told.startswith("Smallest error, counting bits by entropy: OAT at 10 to ")
    assert told.endswith("FAST from 100 bits on.") or "FAST from 101 bits on" in told


def test_between_points_a_curve_is_straight_on_logarithmic_axes() -> None:
    line = curve("OAT", (10, 0.1), (1000, 0.001))
    assert line.error_at(100) == pytest.approx(0.01)
    assert line.error_at(9) == math.inf
    assert line.error_at(5000) == pytest.approx(0.001)  # bits that are not needed need not be spent


def test_ids_that_never_change_hold_no_bits() -> None:
    ids = torch.stack([torch.zeros(4096, dtype=torch.int64), torch.arange(4096) % 8], dim=1)
    tokens = Tokens(ids, torch.full((4096,), 2))
    first, both = cumulative_entropy(tokens, (1, 2))
    assert first == 0
    assert both == pytest.approx(3, abs=0.01)  # of eight ids used evenly


def test_lengths_that_vary_are_paid_for() -> None:
    ids = torch.zeros(1000, 2, dtype=torch.int64)
    lengths = 1 + torch.arange(1000) % 2
    assert cumulative_entropy(Tokens(ids, lengths), (2,))[0] == pytest.approx(1, abs=0.01)


def test_errors_of_many_dimensions_fit_a_line() -> None:
    assert _rmse_text([0.1, 0.25]) == "0.1 0.25"
    assert _rmse_text([0.1] * 20 + [0.5] + [0.2] * 23) == "0.1 … 0.5 (dimension 20)"
