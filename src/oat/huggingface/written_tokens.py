"""What a language model wrote, as the action tokens that it begins with."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oat.errors import InvalidTokens
from oat.tokenizers.tokens import Array, Tokens, as_tokens

FALLBACKS = ("hold", "zeros", "raise")
"""What stands for a chunk of which no token was written: the mean chunk of the fitted data, zeros, or an error."""


def leading_tokens(rows: Sequence[Sequence[int]] | Array, vocab_size: int, longest: int) -> Tokens:
    """Return the ids of each row before the first that is no action token, and no more than a chunk has."""
    whole = isinstance(rows, Array) and rows.ndim == 2
    written = as_tokens(rows if whole else [_ids(row) for row in rows]).to(torch.device("cpu"))
    foreign = (written.ids < 0) | (written.ids >= vocab_size)
    before = (~foreign).long().cumprod(1).sum(1)
    return Tokens(written.ids.where(~foreign, 0), torch.minimum(written.lengths, before).clamp(max=longest))


def _ids(row: Any) -> Sequence[Any]:
    ids = row.tolist() if isinstance(row, Array) else row
    if not isinstance(ids, Sequence) or isinstance(ids, str):
        raise InvalidTokens("tokens must be a list of ids for every chunk: decode([ids]) for a single one")
    return ids


def explain_missing(rows: Sequence[Sequence[int]] | Array, missing: Tensor, vocab_size: int) -> str:
    """Return what is wrong with the first row that has no action token."""
    number = int(missing.nonzero()[0])
    ids = _ids(rows[number])
    what = f"begins with {ids[0]}" if len(ids) else "is empty"
    return f"row {number} {what}: it holds no action token, whose ids are 0…{vocab_size - 1}"
