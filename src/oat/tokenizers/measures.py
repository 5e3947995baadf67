"""Measures of a tokenizer on held-out chunks: distortion per prefix, use of the codebook, speed."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.data.shuffle import Permutation, derive_key
from oat.data.stream import Source
from oat.data.transforms import transform_inputs
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.decoder import masked_error
from oat.tokenizers.tokens import Tokens
from oat.tokenizers.tolerance import MaxError
from oat.tokenizers.unusual import errors_by_dimension, worst_dimension

_DECODED_AT_ONCE = 512  # chunks, which bounds the memory that decoding takes


@dataclass(frozen=True)
class ChunkBatch:
    """Hold chunks in action units, with the state that the tokenizer's transform refers to."""

    actions: Float[Tensor, "chunks time dim"]
    valid: Bool[Tensor, "chunks time"]
    state: Float[Tensor, "chunks state"] | None

    def __len__(self) -> int:
        return len(self.actions)

    def __getitem__(self, rows: Sequence[int]) -> "ChunkBatch":
        return ChunkBatch(self.actions[rows], self.valid[rows], None if self.state is None else self.state[rows])

    def to(self, device: torch.device) -> "ChunkBatch":
        """Return the same chunks on another device."""
        state = None if self.state is None else self.state.to(device)
        return ChunkBatch(self.actions.to(device), self.valid.to(device), state)

    def encode(self, tokenizer: BaseTokenizer, search: int = 0) -> Tokens:
        """Return the chunks' tokens, without letting steps past an episode's end influence them."""
        return tokenizer.encode(self.actions, self.valid, self.state, search=search)


def draw_windows(windows: Source, most: int | None = None) -> Int64[np.ndarray, " drawn"]:
    """Return the numbers of all windows, or of `most` of them in a fixed random order."""
    numbers = np.arange(len(windows))
    if most is None or most >= len(windows):
        return numbers
    # Neighbouring windows overlap: the first ones would all be of a few episodes.
    return Permutation(len(windows), derive_key(0))(numbers[:most])


def draw_chunks(windows: Source, tokenizer: BaseTokenizer, most: int | None = None) -> ChunkBatch:
    """Return the chunks of all windows, or of `most` of them in a fixed random order."""
    return chunks_at(windows, draw_windows(windows, most), tokenizer)


def chunks_at(windows: Source, numbers: Int64[np.ndarray, " chosen"], tokenizer: BaseTokenizer) -> ChunkBatch:
    """Return the chunks of the windows with these numbers."""
    return ChunkBatch(*transform_inputs(windows[numbers], tokenizer.space.transform))


def typical_chunks(chunks: ChunkBatch, count: int) -> list[int]:
    """Return some chunks from little motion to much, without invented steps where there are such."""
    whole = torch.nonzero(chunks.valid.all(1)).squeeze(-1)
    whole = whole if len(whole) else torch.arange(len(chunks), device=chunks.valid.device)
    order = whole[chunks.actions[whole].var(1).sum(1).argsort()]
    # The stillest chunks would show nothing, the wildest are outliers.
    return [int(order[round(share * (len(order) - 1))]) for share in torch.linspace(0.3, 0.95, count).tolist()]


@torch.no_grad()
def decode_prefixes(
    tokenizer: BaseTokenizer, tokens: Tokens, chunks: ChunkBatch
) -> Float[Tensor, "chunks prefixes time dim"]:
    """Return what every decodable prefix of every chunk decodes to, in action units."""
    lengths = tokenizer.prefix_lengths()
    blocks = []
    for first in range(0, len(chunks), _DECODED_AT_ONCE):
        part = slice(first, first + _DECODED_AT_ONCE)
        state = None if chunks.state is None else chunks.state[part]
        blocks.append(torch.stack([tokenizer.decode(tokens[part, :k], state=state) for k in lengths], dim=1))
    return torch.cat(blocks)


def model_errors(
    tokenizer: BaseTokenizer, decoded: Float[Tensor, "chunks prefixes time dim"], chunks: ChunkBatch
) -> Float[Tensor, "chunks prefixes"]:
    """Return the mean squared error of every chunk and prefix, in model space."""
    chunks = chunks.to(tokenizer.device)
    target = tokenizer.to_model_space(chunks.actions, chunks.state)
    errors = [
        masked_error(tokenizer.to_model_space(prefix, chunks.state), target, chunks.valid)
        for prefix in decoded.unbind(1)
    ]
    return torch.stack(errors, dim=1)


@torch.no_grad()
def distortions(tokenizer: BaseTokenizer, chunks: ChunkBatch) -> Float[Tensor, "chunks prefixes"]:
    """Return the mean squared error of every chunk for every decodable prefix, in model space."""
    tokens = chunks.encode(tokenizer)
    return model_errors(tokenizer, decode_prefixes(tokenizer, tokens, chunks), chunks)


@dataclass(frozen=True)
class CodebookUse:
    """Describe how one token position uses the vocabulary."""

    used: float
    """Share of ids that occur at all."""
    perplexity: float
    """Two to the power of the entropy: the number of ids it would take if all were equally likely."""


def codebook_use(tokens: Tokens, vocab_size: int) -> list[CodebookUse]:
    """Return the use of the vocabulary at each position, over all the given chunks."""
    uses = []
    for position in range(tokens.ids.shape[1]):
        ids: Int64[Tensor, " n"] = tokens.ids[tokens.lengths > position, position]
        counts = torch.bincount(ids, minlength=vocab_size).double()
        shares = counts[counts > 0] / counts.sum()
        entropy = float(-(shares * shares.log2()).sum())
        uses.append(CodebookUse(float((counts > 0).double().mean()), 2**entropy))
    return uses


def cumulative_entropy(tokens: Tokens, prefixes: Sequence[int]) -> list[float]:
    """Return the bits that the ids of each prefix hold, the sum of the entropies of its positions.

    The end of a shorter sequence counts as an id of its own, so that tokenizers of varying lengths pay for it.
    """
    ids = torch.where(tokens.real, tokens.ids, -1).cpu()
    entropies = torch.tensor([_entropy(column) for column in ids.unbind(1)], dtype=torch.float64)
    total = entropies.cumsum(0).tolist() or [0.0]
    return [total[min(length, len(total)) - 1] for length in prefixes]


def _entropy(ids: Int64[Tensor, " chunks"]) -> float:
    """Return the entropy of ids in bits, corrected for the few that were seen (Miller and Madow)."""
    counts = torch.bincount(ids + 1).double()  # where there is no token, the id is -1
    counts = counts[counts > 0]
    shares = counts / counts.sum()
    seen = float(-(shares * shares.log2()).sum())
    # Of few chunks many ids are never seen: the plain estimate is too small by about this.
    return seen + (len(counts) - 1) / (2 * len(ids) * math.log(2))


def monotone_share(errors: Float[Tensor, "chunks prefixes"]) -> float:
    """Return the share of chunks whose error falls, or stays, with every single token."""
    return float((errors.diff(dim=1) <= 0).all(1).double().mean())


@dataclass(frozen=True)
class TokenizerMeasures:
    """Hold what was measured of a tokenizer on held-out chunks."""

    name: str
    kind: str
    chunks: int
    tokens: float
    """Mean tokens per chunk."""
    bits: float
    """Mean bits per chunk: tokens times the logarithm of the vocabulary."""
    entropy: tuple[float, ...]
    """Bits per chunk that the ids of each prefix hold, position by position; a position may also hold no id."""
    prefixes: tuple[int, ...]
    mse: tuple[float, ...]
    """Mean squared error in model space, for each prefix."""
    rmse: tuple[tuple[float, ...], ...]
    """Root mean squared error in action units, for each prefix and dimension."""
    monotone: float
    """Share of chunks whose error falls, or stays, with every further token."""
    usual: float | None
    """Error that 99 % of the chunks held out in fitting stayed below; None where it was not recorded."""
    unusual: float | None
    """Share of these chunks beyond it."""
    worst: int
    """Number of the dimension of model space that has most of the error."""
    used: tuple[float, ...]
    perplexity: tuple[float, ...]
    """Use of the codebook at each token position; empty for variable-length tokenizers."""
    encode_rate: float
    decode_rate: float
    """Chunks encoded, and sequences decoded (on average over the prefixes), per second."""
    lengths_within: dict[str, tuple[int, ...]]
    """Counts of chunks that need 1, 2, … tokens, for each limit of the largest error in action units."""


@torch.no_grad()
def evaluate(
    tokenizer: BaseTokenizer,
    chunks: ChunkBatch,
    limits: tuple[float, ...] = (),
    everything: ChunkBatch | None = None,
    name: str = "",
) -> TokenizerMeasures:
    """Measure all that `oat inspect` shows of a tokenizer; use of the codebook over `everything`, if given."""
    chunks = chunks.to(tokenizer.device)
    begin = time.perf_counter()
    tokens = chunks.encode(tokenizer)
    encoded = time.perf_counter()
    decoded = decode_prefixes(tokenizer, tokens, chunks)
    seconds = (time.perf_counter() - encoded) / decoded.shape[1]
    errors = model_errors(tokenizer, decoded, chunks)
    fixed = bool((tokens.lengths == tokenizer.max_tokens).all())
    uses = []
    # Per position is only meaningful where every chunk has it, and only readable where there are few.
    if fixed and tokenizer.max_tokens <= 64:
        seen = tokens if everything is None else everything.encode(tokenizer)
        uses = codebook_use(seen, tokenizer.vocab_size)
    mean_length = float(tokens.lengths.double().mean())
    usual = tokenizer.training_record.usual_error()
    squares = (decoded - chunks.actions[:, None]).square() * chunks.valid[:, None, :, None]
    rmse = (squares.sum((0, 2)) / chunks.valid.sum()).sqrt()
    # Measured once for all limits; the size of this one is not used.
    worst = MaxError(0.0).measure(decoded, chunks.actions[:, None], chunks.valid[:, None])
    return TokenizerMeasures(
        name=name or tokenizer.kind,
        kind=tokenizer.kind,
        chunks=len(chunks),
        tokens=mean_length,
        bits=mean_length * math.log2(tokenizer.vocab_size),
        entropy=tuple(cumulative_entropy(tokens, tokenizer.prefix_lengths())),
        prefixes=tuple(tokenizer.prefix_lengths()),
        mse=tuple(errors.mean(0).tolist()),
        rmse=tuple(tuple(row) for row in rmse.tolist()),
        monotone=monotone_share(errors),
        usual=usual,
        unusual=None if usual is None else float((errors[:, -1] > usual).double().mean()),
        worst=worst_dimension(_errors_by_dimension(tokenizer, decoded[:, -1], chunks)),
        used=tuple(use.used for use in uses),
        perplexity=tuple(use.perplexity for use in uses),
        encode_rate=len(chunks) / (encoded - begin),
        decode_rate=len(chunks) / seconds,
        lengths_within={f"{limit:.3g}": _lengths_within(worst, limit) for limit in limits},
    )


def _errors_by_dimension(
    tokenizer: BaseTokenizer, decoded: Float[Tensor, "chunks time dim"], chunks: ChunkBatch
) -> Float[Tensor, "chunks numbers"]:
    """Return the error of every chunk in model space, dimension by dimension."""
    target = tokenizer.to_model_space(chunks.actions, chunks.state)
    return errors_by_dimension(tokenizer.to_model_space(decoded, chunks.state), target, chunks.valid)


def _lengths_within(worst: Float[Tensor, "chunks prefixes"], limit: float) -> tuple[int, ...]:
    """Count the chunks that need 1, 2, … tokens; those that stay above the limit count among the last."""
    shortest = MaxError(limit).shortest(worst)
    return tuple(torch.bincount(shortest - 1, minlength=worst.shape[1]).tolist())
