"""How many tokens change when chunks hardly do: exactly known for toys, and within bounds for every kind."""

import numpy as np
import pytest
import torch

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import Episodes
from oat.errors import InvalidOption
from oat.nn.fsq import FSQ
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.bin import BinTokenizer
from oat.tokenizers.stability import Stability, count_flips, draw_neighbours, measure_stability
from oat.tokenizers.tokens import Tokens
from tests.tokenizers.fitted import DIM, HORIZON, fitted, smooth_chunks

STEPS = 20
RAMP = np.arange(STEPS, dtype=np.float32)[:, None]


def windows_of(actions: np.ndarray, lengths: list[int], horizon: int = 4) -> Windows:
    return Windows(Episodes.from_arrays(actions.astype(np.float32), lengths), WindowConfig(horizon, 1))


def binned(bins: int, low: float = 0.0, high: float = STEPS - 1) -> BaseTokenizer:
    """Cut [low, high] into bins, for chunks of four numbers."""
    return BinTokenizer.fit(np.linspace(low, high, 4).reshape(1, 4, 1), bins=bins, validation=0.0)


def stability_of(tokenizer: BaseTokenizer, windows: Windows, noise: float = 0.01) -> Stability:
    neighbours = draw_neighbours(windows, tokenizer)
    return measure_stability(tokenizer, *neighbours, torch.Generator().manual_seed(0), noise)


def test_nothing_flips_where_nothing_moves() -> None:
    found = stability_of(binned(50), windows_of(np.full((STEPS, 1), 9.7), [STEPS]), noise=1e-6)
    assert found.pairs == STEPS - 1
    for flips in (found.shifted, found.noised):
        assert flips.differ == (0.0,) * 4
        assert flips.share() == 0


def test_every_token_of_a_ramp_flips_until_it_ends() -> None:
    """Each step is more than a bin; past the episode's end the last action is repeated, and cannot flip."""
    found = stability_of(binned(50), windows_of(RAMP, [STEPS])).shifted
    pairs = STEPS - 1
    assert found.compared == (pairs,) * 4
    assert found.differ == pytest.approx([(pairs - place) / pairs for place in range(4)])
    assert found.share(first=1) == 1
    assert found.share() == pytest.approx(np.mean(found.differ))


def test_noise_flips_what_lies_on_a_boundary_half_of_the_time() -> None:
    found = stability_of(binned(2, -1, 1), windows_of(np.zeros((STEPS, 1)), [STEPS])).noised
    drawn = torch.randn(STEPS - 1, 4, 1, generator=torch.Generator().manual_seed(0))
    assert found.differ == pytest.approx((drawn < 0).double().mean((0, 2)).tolist())


def test_neighbours_are_of_one_episode() -> None:
    windows = windows_of(RAMP[:6], [3, 1, 2])
    here, later = draw_neighbours(windows, binned(50))
    assert here.actions[:, 0, 0].tolist() == [0, 1, 4]
    assert later.actions[:, 0, 0].tolist() == [1, 2, 5]
    assert later.valid.sum(1).tolist() == [2, 1, 1]
    with pytest.raises(InvalidOption, match="no episode has two steps"):
        stability_of(binned(50), windows_of(RAMP[:3], [1, 1, 1]))


def test_a_missing_token_differs() -> None:
    one = Tokens.from_lists([[1, 2, 3], [4, 5]])
    other = Tokens.from_lists([[1, 9], [4, 5]])
    for flips in (count_flips(fitted("fast"), one, other), count_flips(fitted("fast"), other, one)):
        assert (flips.compared, flips.differ, flips.levels) == ((2, 2, 1), (0.0, 0.5, 1.0), ())
        assert flips.share() == pytest.approx(2 / 5)
        assert flips.share(first=2) == pytest.approx(1 / 4)


@pytest.mark.parametrize("grid", ["tanh", "symmetric"])
def test_levels_are_the_digits_of_an_id(grid: str) -> None:
    quantizer = FSQ((8, 5, 5, 5), grid)  # type: ignore[arg-type]
    assert quantizer.lattice().coordinates(torch.tensor([0, 7 + 8 * 2 + 40 * 1])).tolist() == [
        [0, 0, 0, 0],
        [7, 2, 1, 0],
    ]
    tokens = [Tokens.from_lists([[number] * 8]) for number in (0, 7 + 8 * 2 + 40 * 1)]
    assert count_flips(fitted("oat"), *tokens).levels == (10.0,) * 8


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_shares_are_shares_and_no_noise_flips_nothing(kind: str) -> None:
    tokenizer = fitted(kind)
    episodes = smooth_chunks(6, seed=5, horizon=3 * HORIZON).reshape(-1, DIM).numpy()
    windows = windows_of(episodes, [3 * HORIZON] * 6, HORIZON)
    found = stability_of(tokenizer, windows, noise=0.0)
    assert set(found.noised.differ) == {0.0}
    assert found.noised.share() == 0
    assert all(0 <= share <= 1 for share in found.shifted.differ)
    assert 0 < found.shifted.share() <= 1
    assert found.shifted.compared[0] == found.pairs == 6 * (3 * HORIZON - 1)
    assert len(found.shifted.levels) == (0 if kind in ("fast", "bin") else tokenizer.max_tokens)
    assert stability_of(tokenizer, windows, noise=0.1).noised.share() > 0
