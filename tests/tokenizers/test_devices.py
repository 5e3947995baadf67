"""What a tokenizer computes is where the tokenizer is, whatever device the inputs were on.

The meta device, which holds no numbers, stands for a graphics card.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from oat.tokenizers import TOKENIZERS
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.measures import ChunkBatch, model_errors
from oat.tokenizers.tokens import TokenLike, Tokens
from tests.tokenizers.fitted import DIM, HORIZON, fitted, smooth_chunks

ELSEWHERE = torch.device("meta")


class OneDevice(TorchFunctionMode):
    """Refuses what a graphics card would: to compute with tensors of two devices."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor) and each.ndim]
        assert len({tensor.device for tensor in tensors}) <= 1, function
        return function(*args, **(kwargs or {}))


def moved(kind: str) -> BaseTokenizer:
    return copy.deepcopy(fitted(kind)).to(ELSEWHERE)


def test_padding_is_told_on_the_tokens_device() -> None:
    tokens = Tokens.from_lists([[1, 2, 3], [4]])
    assert tokens.real.tolist() == [[True, True, True], [True, False, False]]
    with OneDevice():
        assert tokens.to(ELSEWHERE).real.device == ELSEWHERE


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("given", ["tokens", "moved tokens", "lists", "array", "tensor", "moved tensor"])
def test_tokens_are_checked_where_the_tokenizer_is(kind: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the first look at a number, which the meta device has not."""
    tokenizer, ids = moved(kind), torch.zeros(2, fitted(kind).max_tokens, dtype=torch.int64)
    forms: dict[str, TokenLike] = {
        "tokens": Tokens.from_lists(ids.tolist()),
        "moved tokens": Tokens.from_lists(ids.tolist()).to(ELSEWHERE),
        "lists": ids.tolist(),
        "array": ids.numpy(),
        "tensor": ids,
        "moved tensor": ids.to(ELSEWHERE),
    }
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda tensor: False)  # nothing is wrong with them
    monkeypatch.setattr(torch.Tensor, "__int__", lambda tensor: tokenizer.max_tokens)
    with OneDevice():
        checked = tokenizer.checked(forms[given])
    assert (checked.ids.device, checked.lengths.device) == (ELSEWHERE, ELSEWHERE)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_errors_are_measured_where_the_tokenizer_is(kind: str) -> None:
    """Held-out chunks are drawn before training moves the tokenizer."""
    chunks = ChunkBatch(smooth_chunks(5), torch.ones(5, HORIZON, dtype=torch.bool), None)
    decoded = torch.zeros(5, 2, HORIZON, DIM, device=ELSEWHERE)
    tokenizer = moved(kind)
    with OneDevice():
        errors = model_errors(tokenizer, decoded, chunks)
    assert (errors.device, errors.shape) == (ELSEWHERE, (5, 2))
