"""Protocols are told apart by everything in them."""

from dataclasses import fields, replace

import pytest

from oat.errors import InvalidOption, UnknownName
from oat.evaluation.protocol import find_protocol


def test_variants_have_their_own_hash() -> None:
    usual = find_protocol("metaworld")
    assert find_protocol("metaworld") == usual
    variants = [
        find_protocol("metaworld", execute=8),
        find_protocol("metaworld", cameras=("corner2",)),
        find_protocol("metaworld", image_size=64),
        find_protocol("metaworld", delay=4),
        replace(usual, simulator="other"),
        replace(usual, max_steps=400),
        replace(usual, success="at the end"),
        replace(usual, obs_horizon=1),
        replace(usual, trained_on="task"),
    ]
    assert len(variants) == len(fields(usual))
    assert len({each.hash for each in (usual, *variants)}) == 1 + len(variants)


def test_mistakes_are_named() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'metaworld'"):
        find_protocol("metawrld")
    with pytest.raises(InvalidOption, match="at least 1"):
        find_protocol("metaworld", execute=0)
