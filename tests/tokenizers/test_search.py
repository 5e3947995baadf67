"""Encoding by search: tokens move to neighbouring codes, and no prefix of any chunk gets worse."""

from functools import cache

import pytest
import torch
from torch import Tensor

from oat.errors import InvalidOption
from oat.nn.lattice import Lattice
from oat.tokenizers import OATTokenizer
from oat.tokenizers.measures import ChunkBatch, decode_prefixes, model_errors
from oat.tokenizers.search import unevenness
from tests.tokenizers.fitted import HORIZON, fitted, smooth_chunks


@cache
def briefly_trained() -> OATTokenizer:
    return OATTokenizer.fit(smooth_chunks(200), preset="tiny", steps=40, progress=False)


def errors(tokenizer: OATTokenizer, chunks: Tensor, valid: Tensor, search: int) -> Tensor:
    batch = ChunkBatch(chunks, valid, None)
    tokens = tokenizer.encode(chunks, valid, search=search)
    return model_errors(tokenizer, decode_prefixes(tokenizer, tokens, batch), batch)


def test_no_prefix_of_any_chunk_is_worse_and_most_are_better() -> None:
    tokenizer = briefly_trained()
    chunks = smooth_chunks(40, seed=1)  # more than a block
    valid = torch.ones(40, HORIZON, dtype=torch.bool)
    valid[::3, 9:] = False
    plain = errors(tokenizer, chunks, valid, 0)
    searched = errors(tokenizer, chunks, valid, 1)
    assert (searched <= plain + 1e-6).all()
    assert (searched.mean(0) < plain.mean(0)).all()
    assert (searched < plain).any(1).float().mean() > 0.8


def test_rows_do_not_influence_each_other() -> None:
    tokenizer = briefly_trained()
    chunks = smooth_chunks(3, seed=2)
    together = tokenizer.encode(chunks, search=1).ids
    alone = torch.cat([tokenizer.encode(chunk[None], search=1).ids for chunk in chunks])
    assert float((together == alone).float().mean()) > 0.9  # but for ties that rounding decides


def test_no_search_is_the_encoder_s_choice() -> None:
    tokenizer = fitted("oat")
    chunks = smooth_chunks(5)
    assert torch.equal(tokenizer.encode(chunks, search=0).ids, tokenizer.encode(chunks).ids)
    assert len(tokenizer.encode(chunks[:0], search=1)) == 0


@pytest.mark.parametrize("kind", ["bin", "fast", "quest"])
def test_what_has_no_prefixes_of_lattice_codes_cannot_search(kind: str) -> None:
    with pytest.raises(InvalidOption, match="search needs a tokenizer such as oat"):
        fitted(kind).encode(smooth_chunks(2), search=1)
    with pytest.raises(InvalidOption, match="≥ 0"):
        fitted(kind).encode(smooth_chunks(2), search=-1)


def test_neighbours_on_the_lattice() -> None:
    lattice = Lattice((3, 2))
    assert lattice.neighbours(torch.tensor([0, 4])).tolist() == [[0, 1, 0, 3], [3, 5, 1, 4]]


def test_a_rise_counts_more_than_a_fall() -> None:
    even, rising = torch.tensor([[0.4, 0.2, 0.2], [0.4, 0.1, 0.2]])
    assert unevenness(even) < unevenness(rising)
