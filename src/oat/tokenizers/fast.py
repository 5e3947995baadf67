"""FAST (https://arxiv.org/abs/2501.09747; paper, section III-B): cosine transform, rounding, byte-pair encoding.

Decoding is partial: only sequences that expand to exactly H_a · D_a coefficients are chunks.
"""

import json
import math
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from tokenizers import Tokenizer, models, trainers
from torch import Tensor

from oat.errors import CheckpointError, InvalidOption, UndecodableTokens
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.config import FASTConfig
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens

_FIRST_CHARACTER = 0x4E00  # coefficients become characters of one plane without gaps, white space or surrogates


def cosine_matrix(length: int) -> Float[Tensor, "length length"]:
    """Return the orthonormal DCT-II: row k holds frequency k; its transpose is the inverse."""
    n = torch.arange(length, dtype=torch.float64)  # in float32 the transpose would be the inverse only roughly
    matrix = math.sqrt(2 / length) * torch.cos(math.pi * n[:, None] * (2 * n + 1) / (2 * length))
    matrix[0] /= math.sqrt(2)  # a constant row has twice the energy of a cosine
    return matrix.float()


class FASTTokenizer(BaseTokenizer):
    """Give tokens whose number depends on the chunk. Steps past an episode's end are transformed like any other."""

    kind = "fast"
    config_class = FASTConfig
    total = False
    not_a_graph = "decodes by merging strings"

    cosines: Tensor
    lowest: Tensor
    highest: Tensor

    def __init__(self, space: ActionSpace, config: FASTConfig | None = None) -> None:
        super().__init__(space)
        self.config = config or FASTConfig()
        self.register_buffer("cosines", cosine_matrix(space.action_horizon), persistent=False)
        self.register_buffer("lowest", torch.tensor(0))  # the coefficients that have a character
        self.register_buffer("highest", torch.tensor(0))
        self.bpe = Tokenizer(models.BPE())

    @property
    def vocab_size(self) -> int:
        """Return how many tokens the byte-pair encoding has; where data is simple, fewer than asked for."""
        return self.bpe.get_vocab_size()

    @property
    def max_tokens(self) -> int:
        """Return the numbers of a chunk: every token expands to at least one coefficient."""
        return self.action_horizon * self.space.model_dim

    @property
    def is_fitted(self) -> bool:
        """Return whether both the range of the actions and the merges are known."""
        return super().is_fitted and self.vocab_size > 0

    def text_state(self) -> dict[str, str]:
        """Return the byte-pair encoding as the tokenizers library writes it."""
        return {"bpe": self.bpe.to_str()}

    def load_text_state(self, described: dict[str, Any]) -> None:
        """Take the byte-pair encoding from what `text_state` wrote into a checkpoint, and nothing else."""
        try:
            model = json.loads(described["bpe"])["model"]
            texts = sorted(model["vocab"], key=model["vocab"].get)
            merges = [tuple(pair) for pair in model["merges"]]
            # Vocabulary and merges alone: anything else that the library can read from a file would run unasked.
            bpe = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges))
        except KeyError as error:
            raise CheckpointError(f"FAST's byte-pair encoding lacks {error}") from error
        except Exception as error:  # the library raises nothing finer
            raise CheckpointError(f"FAST's byte-pair encoding is unreadable ({error})") from error
        fitting = all(1 <= len(text) <= self.max_tokens and min(text) >= chr(_FIRST_CHARACTER) for text in texts)
        if not fitting or [model["vocab"][text] for text in texts] != list(range(len(texts))):
            raise CheckpointError("FAST's byte-pair encoding is not one of coefficients: tokens do not fit a chunk")
        self.bpe = bpe

    def check_restored(self) -> None:
        """Raise `CheckpointError` unless every coefficient of the fitted range has a character."""
        known = self.bpe.get_vocab()
        count = int(self.highest) - int(self.lowest) + 1
        # In this order: the range may be any number.
        if not 1 <= count <= len(known) or any(chr(_FIRST_CHARACTER + n) not in known for n in range(count)):
            raise CheckpointError(f"FAST has {count} coefficients, and tokens that are not theirs")

    def fit_normalized(self, chunks: Float[Tensor, "chunks time dim"]) -> None:
        """Learn the merges on normalised chunks, the same that will be encoded."""
        rounded = self.coefficients(chunks)
        self.lowest.copy_(rounded.min())
        self.highest.copy_(rounded.max())
        # The whole range, also what did not occur in the data: every rounded coefficient inside it can be encoded.
        alphabet = [chr(_FIRST_CHARACTER + n) for n in range(int(self.highest - self.lowest) + 1)]
        if len(alphabet) > self.config.vocab_size:
            raise InvalidOption(
                f"FAST: the data has {len(alphabet)} different coefficients, more than the vocabulary of "
                f"{self.config.vocab_size}; use a larger one or a smaller scale than {self.config.scale:g}"
            )
        trainer = trainers.BpeTrainer(
            vocab_size=self.config.vocab_size, min_frequency=2, initial_alphabet=alphabet, show_progress=False
        )
        self.bpe = Tokenizer(models.BPE())
        self.bpe.train_from_iterator(self.strings(rounded), trainer)
        self.__dict__.pop("_expansions", None)  # cached, and of the merges that were there before

    def coefficients(self, actions: Float[Tensor, "batch time dim"]) -> Int64[Tensor, "batch numbers"]:
        """Return rounded frequencies, lowest first, dimensions side by side."""
        batch, time, dim = actions.shape
        series = actions.mT.reshape(batch * dim, time)  # one matrix product for all; einsum takes twice as long
        rounded = (series @ (self.config.scale * self.cosines.T)).round_()
        return rounded.reshape(batch, dim, time).mT.flatten(1).long()

    def strings(self, coefficients: Int64[Tensor, "batch numbers"]) -> list[str]:
        """Return a character for each coefficient; one outside the fitted range becomes the nearest inside it."""
        # All chunks become one text that is cut into rows: chr() for each coefficient would dominate encoding.
        bounded = coefficients.clamp(self.lowest, self.highest) - self.lowest + _FIRST_CHARACTER
        text = bounded.cpu().numpy().astype("<u4").tobytes().decode("utf-32-le")
        width = coefficients.shape[1]
        return [text[first : first + width] for first in range(0, len(text), width)]

    def encode_normalized(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Tokens:
        """Return the byte-pair encoding of the chunks' coefficients."""
        encoded = self.bpe.encode_batch_fast(self.strings(self.coefficients(actions)), add_special_tokens=False)
        rows = [encoding.ids for encoding in encoded]
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        ids = torch.zeros(len(rows), int(lengths.max()) if rows else 0, dtype=torch.int64)
        flat = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))  # 7 times as fast as torch.tensor
        ids[torch.arange(ids.shape[1]) < lengths[:, None]] = torch.from_numpy(flat)
        return Tokens(ids.to(actions.device), lengths.to(actions.device))

    @cached_property
    def _expansions(self) -> tuple[Int64[Tensor, "vocab longest"], Int64[Tensor, " vocab"]]:
        """Return the coefficients that each token stands for, padded, and how many they are."""
        texts = [text for text, _ in sorted(self.bpe.get_vocab().items(), key=lambda item: item[1])]
        expanded = Tokens.from_lists([[ord(c) - _FIRST_CHARACTER for c in text] for text in texts])
        return expanded.ids + self.lowest.cpu(), expanded.lengths

    def decode_normalized(
        self, tokens: Tokens, num_actions: int, noise: Float[Tensor, "batch time dim"] | None = None
    ) -> tuple[Float[Tensor, "batch num_actions dim"], Bool[Tensor, " batch"]]:
        """Return what the tokens' coefficients stand for, and which rows expand to as many as a chunk has."""
        values, counts = self._expansions
        ids = tokens.ids.cpu()  # where the expansions are: they come from the byte-pair encoding's strings
        per_token = counts[ids] * (torch.arange(ids.shape[1]) < tokens.lengths.cpu()[:, None])
        # More or fewer coefficients are never cut or filled up: the actions would be wrong, and nobody would know.
        valid = per_token.sum(1) == self.max_tokens
        wanted = torch.arange(values.shape[1]) < per_token[valid][..., None]  # (row, token, place in its expansion)
        coefficients = torch.zeros(len(ids), self.max_tokens)
        coefficients[valid] = values[ids[valid]][wanted].reshape(-1, self.max_tokens).float()
        return self.from_coefficients(coefficients, num_actions), valid.to(self.cosines.device)

    def from_coefficients(
        self, coefficients: Float[Tensor, "batch numbers"], num_actions: int
    ) -> Float[Tensor, "batch num_actions dim"]:
        """Return the first actions, in model space, of what frequencies in the order of `coefficients` stand for."""
        frequencies = coefficients.reshape(-1, self.action_horizon, self.space.model_dim).to(self.cosines.device)
        return torch.einsum("ft,bfd->btd", self.cosines[:, :num_actions], frequencies / self.config.scale)

    def expand(self, tokens: Tokens) -> list[Int64[Tensor, " numbers"]]:
        """Return all coefficients that each row's tokens stand for, be they as many as a chunk has or not."""
        values, counts = self._expansions
        nothing = values.new_empty(0)
        return [torch.cat([nothing, *(values[token, : counts[token]] for token in row)]) for row in tokens.tolist()]

    def explain_failure(self, tokens: Tokens) -> None:
        """Raise `UndecodableTokens`, with what the first of these rows expands to."""
        first = len(self.expand(tokens[:1])[0])
        raise UndecodableTokens(
            f"{len(tokens)} of the sequences do not decode: the first expands to {first} coefficients, but a chunk of "
            f"{self.action_horizon} × {self.space.model_dim} has {self.max_tokens}"
        )
