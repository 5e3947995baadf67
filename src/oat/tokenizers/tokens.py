"""The token ids of a batch of chunks, and the forms that they may be given in."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.errors import InvalidOption, InvalidTokens

Array = Tensor | np.ndarray


@dataclass(frozen=True)
class Tokens:
    """Hold token ids of a batch of chunks; row b holds `lengths[b]` ids, what follows them is padding."""

    ids: Int64[Tensor, "batch width"]
    lengths: Int64[Tensor, " batch"]
    clipped: Float[Tensor, " batch"] | None = None
    """Share of each chunk's numbers that lay outside the fitted range; None for tokens that `encode` did not make."""
    errors: Float[Tensor, "batch dim"] | None = None
    """Mean squared error of each chunk's reconstruction in model space, by dimension; None unless it was asked
    for."""

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]]) -> "Tokens":
        """Return the tokens of rows of any lengths, or raise `InvalidTokens` for what is not whole numbers."""
        try:
            # operator.index takes whole numbers of any library, and refuses 1.0, which int would take for a token.
            known = [np.array([operator.index(token) for token in row], np.int64) for row in rows]
        except (TypeError, OverflowError) as error:
            raise InvalidTokens(f"tokens must be rows of whole numbers, such as [[17, 4, 256]] ({error})") from error
        lengths = torch.tensor([len(row) for row in known], dtype=torch.int64)
        ids = torch.zeros(len(known), max(map(len, known), default=0), dtype=torch.int64)
        for number, row in enumerate(known):
            ids[number, : len(row)] = torch.from_numpy(row)
        return cls(ids, lengths)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: slice | Tensor | tuple[slice | Tensor, slice]) -> "Tokens":
        """Choose rows by `tokens[2:5]`, or keep at most the first four tokens of each by `tokens[:, :4]`."""
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        # The decoder would take the first token of a suffix for the first of the chunk.
        if columns.start not in (None, 0) or columns.step not in (None, 1):
            raise InvalidOption("only prefixes of tokens can be taken: tokens[rows, :k]")
        ids = self.ids[rows, columns]
        clipped = None if self.clipped is None else self.clipped[rows]
        # What was measured is the error of all tokens: it holds for some of the rows, but for no prefix.
        errors = None if self.errors is None or ids.shape[1] < self.ids.shape[1] else self.errors[rows]
        return Tokens(ids, self.lengths[rows].clamp(max=ids.shape[1]), clipped, errors)

    @property
    def real(self) -> Bool[Tensor, "batch width"]:
        """Return True where there is a token, and not padding."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths[:, None]

    def to(self, device: torch.device) -> "Tokens":
        """Return the same tokens on another device."""
        clipped = None if self.clipped is None else self.clipped.to(device)
        errors = None if self.errors is None else self.errors.to(device)
        return Tokens(self.ids.to(device), self.lengths.to(device), clipped, errors)

    def tolist(self) -> list[list[int]]:
        """Return each row's ids as a list, without its padding."""
        return [row[:length] for row, length in zip(self.ids.tolist(), self.lengths.tolist(), strict=True)]


TokenLike = Tokens | Array | Sequence[Sequence[int]]


def as_tokens(given: TokenLike) -> Tokens:
    """Return tokens from any form that ids may come in; which ids are allowed is the tokenizer's to say."""
    if isinstance(given, Tokens):
        return given
    if not isinstance(given, Tensor | np.ndarray):
        return Tokens.from_lists(given)
    if given.ndim != 2 or not _is_whole(given):
        raise InvalidTokens(f"tokens must be whole numbers (batch, tokens), got {given.dtype} {tuple(given.shape)}")
    ids = torch.as_tensor(given, dtype=torch.int64)
    return Tokens(ids, torch.full((len(ids),), ids.shape[1], device=ids.device))


def _is_whole(array: Array) -> bool:
    """Return whether the numbers are of a type that holds whole ones only."""
    if isinstance(array, np.ndarray):
        return np.issubdtype(array.dtype, np.integer)
    # A mask of booleans is a likely mistake, and would be decoded as ids 0 and 1.
    return not (array.is_floating_point() or array.is_complex() or array.dtype == torch.bool)
