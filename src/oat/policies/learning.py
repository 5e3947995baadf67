"""What a kind of policy is given to be made and trained: the training calls it, and never asks which kind it is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.data.normalize import Normalizer
from oat.interfaces import UNKNOWN_DEMONSTRATOR
from oat.policies.context import ContextConfig, Values
from oat.policies.decoding import Decoding
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens

if TYPE_CHECKING:
    from oat.policies.policy import Policy


@dataclass(frozen=True)
class PolicySetup:
    """Hold what a policy is made of before it is trained."""

    context: ContextConfig
    space: ActionSpace
    normalizer: Normalizer
    """Fitted to the training chunks, for kinds that predict actions; a tokenizer has its own."""
    tokenizer: BaseTokenizer | None = None
    """Given to kinds whose configuration says that they take one."""
    longest_tokens: int | None = None
    """The most tokens of a training chunk, where they were counted."""
    demonstrator: str = UNKNOWN_DEMONSTRATOR
    """Who demonstrated."""


@dataclass(frozen=True)
class Lesson:
    """Hold a batch of demonstrations: what was observed, and what was done then."""

    values: Values
    tasks: Int64[Tensor, " batch"]
    actions: Float[Tensor, "batch time dim"] | None = None
    """Transformed and normalised, as the policy's `to_model_space` gives them."""
    valid_mask: Bool[Tensor, "batch time"] | None = None
    """False where the demonstration had ended."""
    tokens: Tokens | None = None
    """The same actions as the policy's tokenizer encodes them; for kinds that have one."""


@runtime_checkable
class HeldOut(Protocol):
    """Give a policy what it is measured on during training."""

    def lessons(self) -> Iterator[Lesson]:
        """Return held-out demonstrations, a few at a time."""
        ...

    def open_loop_errors(self, policy: "Policy", decoding: Decoding) -> Float[Tensor, "chunks windows"]:
        """Return the errors in model space of every chunk that `stream` gives; NaN where it did not decode."""
        ...


def mean_over_processes(count: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Return the mean of a count: the processes' gradients are averaged, so all divide by the same number."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return count
    total = count.clone()
    torch.distributed.all_reduce(total)
    return total / torch.distributed.get_world_size()
