"""Normalisers invert exactly inside their range, survive constant dimensions, and see training episodes only."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import STATE, Episodes
from oat.data.normalize import NORMALIZATIONS, Normalizer, action_statistics, observation_statistics
from oat.data.splits import split_episodes
from oat.data.statistics import RunningStatistics
from oat.data.transforms import Relative, Rotation6D
from oat.errors import InvalidEpisode, InvalidOption, TransformError


def statistics_of(values: np.ndarray) -> RunningStatistics:
    """Return the statistics of rows that are given at once."""
    statistics = RunningStatistics(len(values))
    for block in np.array_split(values, 7):
        statistics.update(block)
    return statistics


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-4, 1.0, 1e4]), offset=st.sampled_from([0.0, -50.0]))
@pytest.mark.parametrize("kind", NORMALIZATIONS)
def test_inverse_inside_the_range(kind: str, seed: int, scale: float, offset: float) -> None:
    values = (offset + scale * np.random.default_rng(seed).normal(size=(300, 3))).astype(np.float32)
    normalizer = Normalizer.from_statistics(statistics_of(values), kind)
    low, high = np.quantile(values, (0.01, 0.99), axis=0)
    inside = torch.from_numpy(values[((values > low) & (values < high)).all(axis=1)])
    back = normalizer.denormalize(normalizer.normalize(inside))
    torch.testing.assert_close(back, inside, rtol=1e-5, atol=float(1e-6 * max(scale, abs(offset))))


def test_what_each_kind_means() -> None:
    values = np.random.default_rng(0).normal(3, 2, size=(5000, 2)).astype(np.float32)
    tensor = torch.from_numpy(values)
    statistics = statistics_of(values)
    min_max = Normalizer.from_statistics(statistics, "min_max").normalize(tensor)
    torch.testing.assert_close(min_max.amin(0), -torch.ones(2))
    torch.testing.assert_close(min_max.amax(0), torch.ones(2))
    quantile = Normalizer.from_statistics(statistics, "quantile").normalize(tensor)
    assert quantile.abs().max() == 1  # clipped
    assert 0.015 < (quantile.abs() == 1).float().mean() < 0.025
    standard = Normalizer.from_statistics(statistics, "mean_std").normalize(tensor)
    torch.testing.assert_close(standard.mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(standard.std(0, correction=0), torch.ones(2), atol=1e-4, rtol=0)
    outside = torch.full((1, 2), 1e6)
    assert Normalizer.from_statistics(statistics, "min_max").normalize(outside).min() > 100  # not clipped


@pytest.mark.parametrize("kind", NORMALIZATIONS)
def test_constant_dimensions_map_to_zero_and_back(kind: str) -> None:
    values = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    values[:, 1] = 0.1  # not representable in binary
    values[:, 2] = 0.0
    values[:3, 2] = 1.0  # moves so rarely that its quantiles coincide
    normalizer = Normalizer.from_statistics(statistics_of(values), kind)
    probe = torch.tensor([[0.0, 123.0, 0.0], [1.0, -5.0, 0.0]])
    there = normalizer.normalize(probe)
    assert torch.isfinite(there).all()
    assert (there[:, 1] == 0).all()
    back = normalizer.denormalize(torch.full((1, 3), 0.7))
    assert float(back[0, 1]) == pytest.approx(0.1)
    if kind == "quantile":
        assert (there[:, 2] == 0).all()
        assert float(back[0, 2]) == 0.0


def test_travels_inside_a_state_dict() -> None:
    values = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    fitted = Normalizer.from_statistics(statistics_of(values), "quantile")
    loaded = Normalizer(3)
    loaded.load_state_dict(fitted.state_dict())
    probe = 3 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded.normalize(probe), fitted.normalize(probe))
    assert torch.equal(loaded.denormalize(probe), fitted.denormalize(probe))


def make_set() -> Episodes:
    """Make twenty episodes of random actions, the last three dimensions ten times smaller, and of states around 100."""
    generator = np.random.default_rng(0)
    lengths = [40] * 20
    actions = generator.normal(size=(800, 6)).astype(np.float32)
    states = generator.normal(size=(800, 6)).astype(np.float32) + 100
    actions[:, 3:] *= 0.1
    return Episodes.from_arrays(actions, lengths, observations={STATE: states})


def test_statistics_come_from_the_given_episodes_only() -> None:
    episodes = make_set()
    train, validation = split_episodes(episodes, 0.2, seed=0)
    for number in validation:
        episodes.actions[episodes.frames(number)] = 1e6
        np.asarray(episodes.observation(STATE))[episodes.frames(number)] = 1e6
    chosen = episodes.select(train)
    statistics = action_statistics(Windows(chosen, WindowConfig(8, 1)))
    assert statistics.max.max() < 10
    frames = observation_statistics(chosen, STATE)
    assert frames.max.max() < 200


def test_statistics_count_valid_steps_only() -> None:
    episodes = make_set()
    windows = Windows(episodes, WindowConfig(16, 1))
    batch = windows[np.arange(len(windows))]
    expected = batch.actions[batch.valid_mask]
    statistics = action_statistics(windows)
    assert statistics.count == len(expected)
    np.testing.assert_allclose(statistics.mean, expected.mean(0), atol=1e-5)
    np.testing.assert_allclose(statistics.quantiles((0.01,))[0], np.quantile(expected, 0.01, axis=0), atol=1e-5)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_observations_that_are_not_finite_are_told_with_their_place(wrong: float) -> None:
    """Both observed states and those that actions are relative to are checked, in the chosen episodes only."""
    states = np.zeros((30, 2), np.float32)
    states[17, 1] = wrong
    episodes = Episodes.from_arrays(np.zeros((30, 2), np.float32), [10, 10, 10], observations={STATE: states})
    place = rf"observation\.state\[1\] is {wrong} in frame 17, step 7 of its episode"
    windows = Windows(episodes.select([2, 1]), WindowConfig(4, 1, (STATE,)))
    with pytest.raises(InvalidEpisode, match=place):
        observation_statistics(windows.episodes, STATE)
    with pytest.raises(InvalidEpisode, match=place):
        action_statistics(windows, Relative())
    observation_statistics(episodes.select([0, 2]), STATE)


def test_statistics_are_computed_after_the_transform() -> None:
    episodes = make_set()
    windows = Windows(episodes, WindowConfig(8, 2, (STATE,)))
    relative = action_statistics(windows, Relative(dims=(0, 1, 2)))
    assert (relative.mean[:3] < -90).all()
    assert (np.abs(relative.mean[3:]) < 1).all()
    assert action_statistics(windows, Rotation6D(start=3)).mean.shape == (9,)


def test_transforms_that_do_not_fit_the_data_are_refused() -> None:
    episodes = make_set()
    with pytest.raises(InvalidOption, match=r"must read 'observation.state'"):
        action_statistics(Windows(episodes, WindowConfig(8, 1)), Relative())
    with pytest.raises(TransformError, match="0…5"):
        action_statistics(Windows(episodes, WindowConfig(8, 1)), Relative(dims=(6,)))
    with pytest.raises(InvalidOption, match="one of min_max"):
        Normalizer.from_statistics(statistics_of(np.zeros((4, 1))), "zscore")


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_running_statistics_equal_numpys(sizes: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    blocks = [generator.normal(1e3, 1, size=(n, 2)) for n in [*sizes, 3]]
    statistics = RunningStatistics(sum(sizes) + 3)
    values = np.concatenate(blocks)
    for block in blocks:
        statistics.update(block)
    assert statistics.count == len(values)
    for found, expected in ((statistics.mean, values.mean(0)), (statistics.std, values.std(0))):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(statistics.min, values.min(0))
    np.testing.assert_allclose(statistics.quantiles((0.1, 0.9)), np.quantile(values, (0.1, 0.9), axis=0))


def test_quantiles_of_huge_sets_use_evenly_spread_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("oat.data.statistics.QUANTILE_ROWS", 1000)
    statistics = RunningStatistics(100_000)
    for block in np.array_split(np.arange(100_000.0)[:, None], 333):
        statistics.update(block)
    assert sum(map(len, statistics._sample)) == 1000
    np.testing.assert_allclose(statistics.quantiles((0.01, 0.99))[:, 0], (1000, 99000), atol=200)
