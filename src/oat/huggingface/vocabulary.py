"""Action tokens inside a language model: which of its ids stand for them, and how to make it write nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.errors import InvalidOption, InvalidTokens
from oat.io.extras import import_extra

import_extra("transformers", "hf")
from transformers import LogitsProcessor, PreTrainedModel  # noqa: E402


@dataclass(frozen=True)
class ActionVocabulary:
    """Map action token t to the language model's id `first` + t, or `first` - t if they run backwards."""

    first: int
    """The id of action token 0."""
    size: int
    """Number of action tokens."""
    backwards: bool = False

    @classmethod
    def reserve(cls, model: PreTrainedModel, size: int) -> "ActionVocabulary":
        """Append new ids behind all that the model has: its embeddings grow, and no word changes its meaning."""
        first = len(cast(Tensor, model.get_input_embeddings().weight))
        model.resize_token_embeddings(first + size)
        return cls(first, size)

    @classmethod
    def reuse(cls, llm_vocab_size: int, size: int, skip: int = 0) -> "ActionVocabulary":
        """Take the model's last ids, backwards, all but the `skip` very last, as π0-FAST does: there `skip` is 128.

        The model keeps its shape; rare words give up their embeddings.
        """
        if min(size, skip) < 0 or size + skip > llm_vocab_size:
            raise InvalidOption(
                f"{size} action tokens before the last {skip} ids do not fit into a vocabulary of {llm_vocab_size}"
            )
        return cls(llm_vocab_size - 1 - skip, size, backwards=True)

    def __post_init__(self) -> None:
        if self.size < 1 or self.lowest < 0:
            raise InvalidOption(f"{self.size} action tokens cannot have ids from {self.lowest}")

    @property
    def lowest(self) -> int:
        """Return the smallest of the language model's ids that are action tokens; the others follow without gaps."""
        return self.first - self.size + 1 if self.backwards else self.first

    def to_llm(self, tokens: Iterable[int]) -> list[int]:
        """Return the language model's ids of action tokens."""
        tokens = [int(token) for token in tokens]
        self._check(tokens, tokens)
        return [self.first - token if self.backwards else self.first + token for token in tokens]

    def from_llm(self, ids: Iterable[int]) -> list[int]:
        """Return the action tokens that the language model's ids stand for."""
        ids = [int(number) for number in ids]
        tokens = [self.first - number if self.backwards else number - self.first for number in ids]
        self._check(tokens, ids)
        return tokens

    def _check(self, tokens: list[int], given: list[int]) -> None:
        """Raise InvalidTokens for a token outside the vocabulary, naming the number that the caller gave for it."""
        for place, (token, number) in enumerate(zip(tokens, given, strict=True)):
            if not 0 <= token < self.size:
                raise InvalidTokens(f"id {number} at place {place} is not one of the {self.size} action tokens")

    def mask(self, llm_vocab_size: int) -> Bool[Tensor, " vocab"]:
        """Return True for the ids that are action tokens."""
        end = self.lowest + self.size
        if end > llm_vocab_size:
            raise InvalidOption(f"action tokens have ids up to {end - 1}, the model's vocabulary only {llm_vocab_size}")
        ids = torch.arange(llm_vocab_size)
        return (ids >= self.lowest) & (ids < end)


class ActionTokensOnly(LogitsProcessor):
    """Make `generate` write `num_tokens` action tokens after the prompt and then the end, and nothing else.

    OAT decodes any number of tokens, so `num_tokens` is the choice between fast and fine.
    """

    def __init__(self, vocabulary: ActionVocabulary, num_tokens: int, prompt_length: int, eos_token_id: int) -> None:
        if num_tokens < 1:
            raise InvalidOption(f"a chunk needs at least one token, got {num_tokens}")
        self.vocabulary = vocabulary
        self.num_tokens = num_tokens
        self.prompt_length = prompt_length
        self.eos_token_id = eos_token_id

    def __call__(
        self, input_ids: Int64[Tensor, "batch length"], scores: Float[Tensor, "batch vocab"]
    ) -> Float[Tensor, "batch vocab"]:
        written = input_ids.shape[1] - self.prompt_length
        # By length alone: rows of a batch are padded on the left, so that all prompts end at the same place.
        if written < self.num_tokens:
            allowed = self.vocabulary.mask(scores.shape[1])
        else:
            allowed = torch.arange(scores.shape[1]) == self.eos_token_id
        return scores.masked_fill(~allowed.to(scores.device), -torch.inf)
