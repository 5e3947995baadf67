"""How well a tokenizer does on held-out chunks: distortion per prefix, use of the codebook."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.data.chunks import Windows
from oat.data.shuffle import Permutation, derive_key
from oat.tokenizers.decoder import masked_error
from oat.tokenizers.tokenizer import ActionTokenizer, Tokens

_BLOCK = 512


@dataclass(frozen=True)
class Chunks:
    """Chunks in action units, with the state that the tokenizer's transform refers to."""

    actions: Float[Tensor, "chunks time dim"]
    valid: Bool[Tensor, "chunks time"]
    state: Float[Tensor, "chunks state"] | None

    def __len__(self) -> int:
        return len(self.actions)


def draw_chunks(windows: Windows, tokenizer: ActionTokenizer, most: int | None = None) -> Chunks:
    """All windows, or `most` of them in a fixed random order."""
    numbers = np.arange(len(windows))
    if most is not None and most < len(windows):
        numbers = Permutation(len(windows), derive_key(0))(numbers[:most])
    batch, key = windows[numbers], tokenizer.space.transform.state_key
    state = None if key is None else torch.from_numpy(batch.observations[key][:, -1])
    return Chunks(torch.from_numpy(batch.actions), torch.from_numpy(batch.valid_mask), state)


def prefix_lengths(tokenizer: ActionTokenizer) -> list[int]:
    """The prefix lengths that decode: all for an ordered tokenizer, the whole for others."""
    return list(range(1, tokenizer.max_tokens + 1)) if tokenizer.prefix_decodable else [tokenizer.max_tokens]


@torch.no_grad()
def distortions(tokenizer: ActionTokenizer, chunks: Chunks) -> Float[Tensor, "chunks prefixes"]:
    """Mean squared error of every chunk for every decodable prefix, in model space."""
    rows = []
    for first in range(0, len(chunks), _BLOCK):
        part = slice(first, first + _BLOCK)
        state = None if chunks.state is None else chunks.state[part]
        valid = chunks.valid[part]
        target = tokenizer.to_model_space(chunks.actions[part], state)
        tokens = tokenizer.encode(chunks.actions[part], valid, state)
        errors = []
        for length in prefix_lengths(tokenizer):
            decoded, _ = tokenizer.decode_normalized(tokens[:, :length], tokenizer.action_horizon)
            bounded = decoded.clamp(tokenizer.normalizer.low, tokenizer.normalizer.high)
            errors.append(masked_error(bounded, target, valid))
        rows.append(torch.stack(errors, dim=1))
    return torch.cat(rows)


@dataclass(frozen=True)
class CodebookUse:
    """How one token position uses the vocabulary."""

    used: float
    """Share of ids that occur at all."""
    perplexity: float
    """Two to the power of the entropy: the number of ids it would take if all were equally likely."""


def codebook_use(tokens: Tokens, vocab_size: int) -> list[CodebookUse]:
    """For each position, over all the given chunks."""
    uses = []
    for position in range(tokens.ids.shape[1]):
        ids: Int64[Tensor, " n"] = tokens.ids[tokens.lengths > position, position]
        counts = torch.bincount(ids, minlength=vocab_size).double()
        shares = counts[counts > 0] / counts.sum()
        entropy = float(-(shares * shares.log2()).sum())
        uses.append(CodebookUse(float((counts > 0).double().mean()), 2**entropy))
    return uses
