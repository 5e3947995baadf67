"""Codes as points of a grid: their coordinates are FSQ's digits, and distances are those between coordinates."""

import pytest
import torch

from oat.nn.fsq import FSQ
from oat.nn.lattice import Lattice

LEVELS = [(8, 5, 5, 5), (3,), (2, 7)]


@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_coordinates_are_the_digits_that_fsq_decodes(levels: tuple[int, ...]) -> None:
    quantizer = FSQ(levels)
    lattice = quantizer.lattice()
    ids = torch.arange(quantizer.vocab_size)
    assert lattice.vocab_size == quantizer.vocab_size
    coordinates = lattice.coordinates(ids)
    assert torch.equal((coordinates * quantizer.strides).sum(-1), ids)
    assert torch.equal(quantizer.values(coordinates.float()), quantizer.decode(ids))


@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_distances_to_the_whole_vocabulary_are_those_between_coordinates(levels: tuple[int, ...]) -> None:
    lattice = Lattice(levels)
    every = lattice.coordinates(torch.arange(lattice.vocab_size))
    ids = torch.randint(lattice.vocab_size, (2, 6), generator=torch.Generator().manual_seed(0))
    expected = (lattice.coordinates(ids)[..., None, :] - every).square().sum(-1).float()
    assert torch.equal(lattice.squared_distances(ids), expected)


@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_indicators_tell_every_code_s_level_on_every_axis(levels: tuple[int, ...]) -> None:
    lattice = Lattice(levels)
    indicators = lattice.indicators()
    assert indicators.shape == (lattice.vocab_size, sum(levels))
    assert (indicators.sum(1) == len(levels)).all()
    assert len(set(map(tuple, indicators.tolist()))) == lattice.vocab_size
