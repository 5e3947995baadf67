"""The loop over tokens, which PyTorch's next-token policy and exported ones share (paper, algorithm 2)."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from oat.policies.context import Values
from oat.policies.decoding import Decoding, DecodingOptions, Noise, TokenDecoding, TokenLimits
from oat.policies.predictor import BasePredictor, Chunk
from oat.policies.stopping import StoppingRule

Ids = Int64[Tensor, "batch tokens"]
LogProbabilities = Float[Tensor, "batch tokens"]
NextToken = Callable[[int], tuple[Int64[Tensor, " batch"], Float[Tensor, " batch"]]]
"""From a place, counted from 0 and asked for in order, to every row's token there and its log-probability."""


@dataclass(frozen=True)
class TokenSource:
    """Give the tokens of one prediction, which has read its observation, and chunks of them."""

    next_token: NextToken
    make_chunk: Callable[[Ids, LogProbabilities], Chunk]
    """From the tokens so far and their log-probabilities to actions."""


class TokenPredictor(BasePredictor):
    """Generate tokens one by one until the sequence or every row has ended, or a stopping rule wants a chunk."""

    options = frozenset({"num_tokens", "temperature", "top_k", "greedy", "num_actions", "remainder"})
    has_no = "generates tokens and does not denoise"
    eos: int | None = None
    """The token that ends a row; None where all rows have the same length."""

    @property
    @abstractmethod
    def limits(self) -> TokenLimits:
        """Return which numbers of tokens and actions can be decoded."""

    @abstractmethod
    def start_tokens(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: TokenDecoding, noise: Noise | None
    ) -> TokenSource:
        """Read the observation, and return what gives one token after the other, and actions of those so far."""

    @property
    def length(self) -> int:
        """Return the longest sequence, an end included."""
        return self.limits.longest + (self.eos is not None)

    @property
    def default_decoding(self) -> TokenDecoding:
        return TokenDecoding(greedy=self.limits.greedy, remainder=self.limits.remainder)

    def check_decoding(self, decoding: Decoding) -> None:
        """Raise `InvalidOption` for a decoding beyond the limits."""
        self.limits.check(decoding)

    def make_decodings(self, options: DecodingOptions) -> Iterator[TokenDecoding]:
        """Yield a decoding for every prefix length that the options ask for."""
        limits = self.limits
        greedy = limits.greedy and not options.samples if options.greedy is None else options.greedy
        remainder = limits.remainder if options.remainder is None else options.remainder
        counted = limits.longest if self.anytime else None
        for count in options.num_tokens or (counted,):
            yield TokenDecoding(count, options.temperature, options.top_k, greedy, options.num_actions, remainder)

    @property
    def anytime(self) -> bool:
        """Return whether every prefix of the tokens decodes."""
        return self.limits.prefix_decodable

    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, rule: StoppingRule
    ) -> Iterator[Chunk]:
        """Yield the chunk of the whole sequence, and of those prefixes that the rule wants, where prefixes decode."""
        length = decoding.num_tokens or self.length
        source = self.start_tokens(values, tasks, decoding, noise)
        anytime = self.anytime
        ids: list[Tensor] = []
        log_probabilities: list[Tensor] = []
        for place in range(length):
            token, log_probability = source.next_token(place)
            ids.append(token)
            log_probabilities.append(log_probability)
            # The rule is asked even where prefixes do not decode: it measures how long tokens take.
            wanted = rule.wants_chunk(log_probability) and anytime
            finished = place + 1 == length or self._all_ended(ids)
            if wanted or finished:
                drawn = torch.stack(log_probabilities, 1)
                yield source.make_chunk(torch.stack(ids, 1), drawn)
            if finished:
                return

    def _all_ended(self, ids: list[Tensor]) -> bool:
        return self.eos is not None and bool((torch.stack(ids) == self.eos).any(0).all())
