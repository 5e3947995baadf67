"""Search for better tokens through the decoder: coordinate descent over codes that are neighbours on the lattice.

An encoder decides each token without knowing what the others were rounded to. Here every token in turn, the first one
first, moves to the neighbouring code that does best for all prefixes that hold it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.nn.lattice import Lattice
from oat.tokenizers.decoder import masked_error
from oat.tokenizers.tokens import Tokens

SEARCHED_AT_ONCE = 32
"""Chunks of a block: each is decoded from eight neighbours of a code and every prefix at once."""
_RISE = 10.0  # how much more a rise of the error from one prefix to the next counts than a fall of the same size


@dataclass(frozen=True)
class CodeSearch:
    """Improve the tokens of some chunks in model space; no prefix of any chunk gets a larger error than it had."""

    decode: Callable[[Tokens], Float[Tensor, "rows time dim"]]
    lattice: Lattice
    chunks: Float[Tensor, "batch time dim"]
    valid: Bool[Tensor, "batch time"]

    def improve(self, ids: Int64[Tensor, "batch tokens"], sweeps: int) -> Int64[Tensor, "batch tokens"]:
        """Return the ids after so many sweeps over all tokens, or fewer where nothing changes any more."""
        first = self.errors(ids[:, None], 1)[:, 0]
        errors = first
        for _ in range(sweeps):
            before = ids
            for place in range(ids.shape[1]):
                ids, errors = self._move(ids, errors, first, place)
            if torch.equal(ids, before):
                break
        return ids

    def _move(
        self,
        ids: Int64[Tensor, "batch tokens"],
        errors: Float[Tensor, "batch tokens"],
        limits: Float[Tensor, "batch tokens"],
        place: int,
    ) -> tuple[Int64[Tensor, "batch tokens"], Float[Tensor, "batch tokens"]]:
        """Return tokens and their prefixes' errors after the token at a place has moved, where that is better."""
        near = self.lattice.neighbours(ids[:, place])
        tried = ids[:, None].repeat(1, near.shape[1] + 1, 1)  # the last one stays as it is
        tried[:, :-1, place] = near
        found = errors[:, None].repeat(1, tried.shape[1], 1)
        # Prefixes that end before this token know nothing of it.
        found[:, :-1, place:] = self.errors(tried[:, :-1], place + 1)
        score = unevenness(found).masked_fill((found > limits[:, None]).any(-1), torch.inf)
        best = score.argmin(1)
        rows = torch.arange(len(ids), device=ids.device)
        return tried[rows, best], found[rows, best]

    def errors(self, ids: Int64[Tensor, "batch tried tokens"], shortest: int) -> Float[Tensor, "batch tried prefixes"]:
        """Return the mean squared error of every prefix from the shortest on, for several sequences of each chunk."""
        batch, tried, tokens = ids.shape
        lengths = torch.arange(shortest, tokens + 1, device=ids.device)
        repeats = tried * len(lengths)
        rows = ids.flatten(0, 1).repeat_interleave(len(lengths), 0)
        decoded = self.decode(Tokens(rows, lengths.repeat(batch * tried)))
        targets = self.chunks.repeat_interleave(repeats, 0)
        found = masked_error(decoded, targets, self.valid.repeat_interleave(repeats, 0))
        return found.view(batch, tried, len(lengths))


def unevenness(errors: Float[Tensor, "*n prefixes"]) -> Float[Tensor, "*n"]:
    """Return the sum of the prefixes' log errors and, many times over, of all their rises from one to the next.

    Logarithms, because errors of short prefixes would drown the others'; rises, because every token should refine.
    """
    logs = errors.clamp_min(1e-12).log()
    return logs.sum(-1) + _RISE * logs.diff(dim=-1).clamp_min(0).sum(-1)
