"""FSQ: exact codes, full use of its levels, float32 whatever the autocast."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oat.errors import InvalidOption
from oat.nn.fsq import FSQ, Grid, levels_within

LEVEL_SETS = [(8, 6, 5), (8, 8, 8), (8, 5, 5, 5), (8, 8, 6, 5), (7, 5, 5, 5, 5), (2,), (3, 2)]
GRIDS: list[Grid] = ["tanh", "symmetric"]


@pytest.mark.parametrize("levels", LEVEL_SETS, ids=str)
@pytest.mark.parametrize("grid", GRIDS)
def test_every_index_is_a_code_and_back(levels: tuple[int, ...], grid: Grid) -> None:
    fsq = FSQ(levels, grid)
    ids = torch.arange(fsq.vocab_size)
    values = fsq.decode(ids)
    assert len(torch.unique(values, dim=0)) == fsq.vocab_size
    assert values.abs().max() <= 1
    positions = (ids[:, None] // fsq.strides % fsq.sizes).float()
    assert torch.equal(fsq.encode(positions), ids)
    torch.testing.assert_close(fsq.values(positions), values)


@pytest.mark.parametrize("levels", LEVEL_SETS, ids=str)
@pytest.mark.parametrize("grid", GRIDS)
def test_every_code_is_reached_and_quantizing_agrees_with_decoding(levels: tuple[int, ...], grid: Grid) -> None:
    fsq = FSQ(levels, grid)
    latents = torch.randn(400_000, len(levels), generator=torch.Generator().manual_seed(0))
    ids = fsq.encode(fsq.position(latents))
    assert len(torch.unique(ids)) == fsq.vocab_size
    torch.testing.assert_close(fsq(latents), fsq.decode(ids))


@given(scale=st.sampled_from([1e-6, 1.0, 1e6, 1e30]), seed=st.integers(0, 1000))
def test_any_finite_latent_has_a_code(scale: float, seed: int) -> None:
    for grid in GRIDS:
        fsq = FSQ((8, 5, 5, 5), grid)
        latents = scale * torch.randn(50, 4, generator=torch.Generator().manual_seed(seed))
        ids = fsq.encode(fsq.position(latents))
        assert ids.min() >= 0
        assert ids.max() < fsq.vocab_size


def test_the_paper_s_grid_is_asymmetric_for_even_levels_and_ours_is_not() -> None:
    assert FSQ((8,)).decode(torch.arange(8)).flatten().tolist() == [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75]
    symmetric = FSQ((8,), "symmetric").decode(torch.arange(8)).flatten()
    torch.testing.assert_close(symmetric, -symmetric.flip(0))


@pytest.mark.parametrize(("grid", "bits"), [("tanh", 2.305), ("symmetric", 2.321)])
def test_entropy_for_gaussian_latents(grid: Grid, bits: float) -> None:
    fsq = FSQ((5,), grid)
    latents = torch.randn(400_000, 1, generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(fsq.encode(fsq.position(latents))) / len(latents)
    assert float(-(shares * shares.log2()).sum()) == pytest.approx(bits, abs=2e-3)


def test_gradients_pass_straight_through() -> None:
    for grid in GRIDS:
        fsq = FSQ((8, 5), grid)
        latents = torch.randn(10, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
        fsq(latents).sum().backward()
        assert latents.grad is not None
        assert (latents.grad > 0).all()


def test_stays_in_float32_under_autocast() -> None:
    fsq = FSQ((8, 5, 5, 5))
    latents = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0))
    expected = fsq(latents)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fsq(latents), expected)


def test_the_margin_is_the_distance_to_the_nearest_boundary() -> None:
    fsq = FSQ((5,))
    positions = torch.tensor([[-0.01], [0.0], [0.45], [0.55], [2.0], [3.4], [4.01]])
    torch.testing.assert_close(fsq.margin(positions), torch.tensor([0.5, 0.5, 0.05, 0.05, 0.5, 0.1, 0.5]))


def test_impossible_levels_are_refused() -> None:
    for levels in ((), (1, 5)):
        with pytest.raises(InvalidOption, match="at least 2"):
            FSQ(levels)


@pytest.mark.parametrize(("size", "levels"), [(1024, (8, 5, 5, 5)), (1000, (8, 5, 5, 5)), (240, (8, 6, 5)), (5, (5,))])
def test_levels_are_chosen_for_a_vocabulary(size: int, levels: tuple[int, ...]) -> None:
    assert levels_within(size) == levels


@given(size=st.integers(125, 70_000))
def test_the_chosen_vocabulary_is_nearly_as_large_as_allowed(size: int) -> None:
    assert 0.75 * size < FSQ(levels_within(size)).vocab_size <= size


def test_a_vocabulary_has_at_least_five_tokens() -> None:
    with pytest.raises(InvalidOption, match="at least 5 tokens, got 4"):
        levels_within(4)
