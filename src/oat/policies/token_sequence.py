"""Tokens in the making: a next-token policy's logits, position by position, after the tokens chosen so far."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from oat.nn.generation import Generation

if TYPE_CHECKING:
    from oat.policies.autoregressive import AutoregressivePolicy


class TokenSequence:
    """Hold the sequences of several rows, which begin with BOS, have one length and no gradients."""

    def __init__(self, policy: "AutoregressivePolicy", context: Float[Tensor, "batch tokens dim"], length: int) -> None:
        self.last: Int64[Tensor, " batch"] = torch.full((len(context),), policy.bos, device=context.device)
        """Every row's last token; who chooses the next one sets it."""
        self.hidden: Float[Tensor, "batch dim"] | None = None
        """What the last logits were made of."""
        self._positions = policy.positions
        self._logits = policy.logits
        self._vectors = policy.embedding.vectors()
        self._generation = Generation(policy.backbone, context, length)

    def next_logits(self, place: int) -> Float[Tensor, "batch outputs"]:
        """Return the logits of the next place, counted from 0 and asked for in order."""
        embedded = F.embedding(self.last, self._vectors) + self._positions[place]
        self.hidden = self._generation.step(embedded)
        return self._logits(self.hidden, self._vectors)

    def repeat(self, times: int) -> None:
        """Let every row be several, which have the same past, one after the other."""
        self.last = self.last.repeat_interleave(times, 0)
        self.hidden = None if self.hidden is None else self.hidden.repeat_interleave(times, 0)
        self._generation.repeat(times)

    def go_on_from(self, rows: Int64[Tensor, " batch"]) -> None:
        """Let each row go on from the tokens of another, which has the same context."""
        self.last = self.last[rows]
        self._generation.cache.take(rows)
