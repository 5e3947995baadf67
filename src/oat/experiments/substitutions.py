"""Replace some tokens of encoded chunks by wrong ones, and decode the result whether it decodes or not."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from oat.evaluation.statistics import wilson
from oat.experiments.study.held_out import generator
from oat.tables.interval import Interval
from oat.tokenizers import BaseTokenizer, FASTTokenizer
from oat.tokenizers.measures import ChunkBatch
from oat.tokenizers.tokens import Tokens


@dataclass(frozen=True)
class Damage:
    """Hold what is left of encoded chunks when some of their tokens are replaced by random ones."""

    method: str
    substitutions: int
    undecodable: Interval
    rmse: Float[Tensor, " dim"]
    """Root mean squared error in action units; sequences that do not decode are padded or truncated."""
    decoded: Float[Tensor, "chunks time dim"]
    failed: Bool[Tensor, " chunks"]


def measure_damage(name: str, tokenizer: BaseTokenizer, chunks: ChunkBatch, substitutions: int) -> Damage:
    """Replace that many tokens of every chunk, at random places, by other ids, and force every chunk to decode."""
    tokens = substitute(chunks.encode(tokenizer), tokenizer.vocab_size, substitutions, generator())
    decoded, valid = tokenizer.try_decode(tokens, state=chunks.state)
    # FAST alone has sequences that do not decode; every other tokenizer is total.
    if isinstance(tokenizer, FASTTokenizer):
        forced = decode_forced(tokenizer, tokens[~valid], None if chunks.state is None else chunks.state[~valid])
        decoded = decoded.masked_scatter(~valid[:, None, None], forced)
    squares = (decoded - chunks.actions).square() * chunks.valid[..., None]
    rmse = (squares.sum((0, 1)) / chunks.valid.sum()).sqrt()
    failures = wilson(int((~valid).sum()), len(valid))
    return Damage(name, substitutions, failures, rmse, decoded, ~valid)


def substitute(tokens: Tokens, vocab_size: int, count: int, random: torch.Generator) -> Tokens:
    """Return every row with `count` of its tokens, or all where it has no more, replaced by other ids."""
    ids = tokens.ids.clone()
    for row, length in zip(ids, tokens.lengths.tolist(), strict=True):
        places = torch.randperm(length, generator=random)[:count]
        # A shift of at least one can never give the same id again.
        shifts = torch.randint(1, vocab_size, (len(places),), generator=random)
        row[places] = (row[places] + shifts) % vocab_size
    return Tokens(ids, tokens.lengths)


def decode_forced(
    fast: FASTTokenizer, tokens: Tokens, state: Float[Tensor, "batch state"] | None = None
) -> Float[Tensor, "batch time dim"]:
    """Decode any FAST sequence: fill up missing coefficients with zeros, and drop those that are too many.

    The tokenizer itself refuses such sequences; this shows what they would become.
    """
    needed = fast.max_tokens
    rows = [F.pad(row[:needed], (0, max(0, needed - len(row)))) for row in fast.expand(tokens)]
    coefficients = torch.stack(rows).float() if rows else torch.zeros(0, needed)
    decoded = fast.from_coefficients(coefficients, fast.action_horizon)
    bounded = decoded.clamp(fast.normalizer.low, fast.normalizer.high)
    return fast.space.transform.inverse(fast.normalizer.denormalize(bounded), state)
