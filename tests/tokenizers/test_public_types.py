"""A user's type checker sees what the lazy public names are."""

import tomllib
from pathlib import Path
from typing import assert_type

import numpy as np
import torch

import oat
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.bin import BinTokenizer
from oat.tokenizers.oat import OATTokenizer
from oat.tokenizers.tokens import Tokens
from tests.texts import ROOT


def test_public_names_have_real_types(tmp_path: Path) -> None:
    """`assert_type` speaks to mypy, to which a lazy name without a declaration would be Any; the rest is what runs."""
    chunks = np.random.default_rng(0).normal(size=(100, 16, 3)).astype(np.float32)
    tokenizer = oat.OATTokenizer.fit(chunks, preset="tiny", steps=1, progress=False)
    assert_type(tokenizer, OATTokenizer)
    tokens = tokenizer.encode(chunks[:4])
    assert_type(tokens, Tokens)
    actions = tokenizer.decode(tokens[:, :2])
    assert_type(actions, torch.Tensor)
    binned = oat.BinTokenizer.fit(chunks)
    assert_type(binned, BinTokenizer)
    tokenizer.save(tmp_path / "tokenizer")
    loaded = oat.load_tokenizer(tmp_path / "tokenizer")
    assert_type(loaded, BaseTokenizer)
    found = [type(value) for value in (tokenizer, tokens, actions, binned, loaded)]
    assert found == [OATTokenizer, Tokens, torch.Tensor, BinTokenizer, OATTokenizer]


def test_types_are_declared_and_checked() -> None:
    """Of the package to users, and here by `make lint`, which reads this file."""
    assert (Path(oat.__file__).parent / "py.typed").exists()
    assert "tests" in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
