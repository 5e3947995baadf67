"""The keyed permutation is a permutation, looks random, and needs no table."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oat.data.shuffle import Permutation, derive_key


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_is_a_permutation(size: int, key: int) -> None:
    image = Permutation(size, key)(np.arange(size))
    assert np.array_equal(np.sort(image), np.arange(size))


@given(size=st.integers(1, 2**40), key=st.integers(0, 2**64 - 1), data=st.data())
def test_any_position_of_a_huge_set_is_mapped_alone(size: int, key: int, data: st.DataObject) -> None:
    positions = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5, unique=True)))
    together = Permutation(size, key)(positions)
    alone = [int(Permutation(size, key)(positions[i : i + 1])[0]) for i in range(len(positions))]
    assert together.tolist() == alone
    assert ((together >= 0) & (together < size)).all()
    assert len(set(alone)) == len(positions)


def test_looks_random() -> None:
    """Positions, neighbours and keys are uncorrelated: each statistic is within five standard errors."""
    size = 100_000
    first, second = (Permutation(size, derive_key(0, epoch))(np.arange(size)) for epoch in (0, 1))
    for a, b in ((first, np.arange(size)), (first[1:], first[:-1]), (first, second)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(size)
    counts = np.histogram(first[: size // 10], 50, (0, size))[0]
    expected = size / 10 / 50
    assert ((counts - expected) ** 2 / expected).sum() < 49 + 5 * np.sqrt(2 * 49)


def test_golden_values() -> None:
    """The order of training data is part of a run's identity and must not change between versions."""
    assert Permutation(10, derive_key(0, 0))(np.arange(10)).tolist() == [6, 1, 5, 8, 7, 9, 4, 2, 3, 0]
