"""The loop over tokens, which PyTorch's next-token policy and exported ones share (paper, algorithm 2)."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.policies.context import Values
from oat.policies.decoding import Decoding, DecodingOptions, TokenDecoding, TokenLimits
from oat.policies.predictor import BasePredictor, Chunk
from oat.policies.sampling import Noise
from oat.policies.stopping import DepthRule, RowState, StoppingRule

Ids = Int64[Tensor, "batch tokens"]
LogProbabilities = Float[Tensor, "batch tokens"]
Lengths = Int64[Tensor, " batch"]


class TokenStep(NamedTuple):
    """Hold every row's token at one place."""

    token: Int64[Tensor, " batch"]
    log_probability: Float[Tensor, " batch"]
    hidden: Float[Tensor, "batch dim"] | None = None
    """What the policy knew when it chose the token; None in exports of before."""


@dataclass(frozen=True)
class TokenSource:
    """Give the tokens of one prediction, which has read its observation, and chunks of them."""

    next_token: Callable[[int], TokenStep]
    """From a place, counted from 0 and asked for in order, to every row's token there."""
    make_chunk: Callable[[Ids, LogProbabilities, Lengths | None], Chunk]
    """From the tokens so far, their log-probabilities and how many each row has, or None for all, to actions."""
    go_on_from: Callable[[Lengths], None]
    """Lets each row go on from the tokens of another of the same observation, by its number."""


class _Depths:
    """Remember after how many tokens each row has stopped."""

    def __init__(self, rule: DepthRule | None, noise: Noise | None) -> None:
        self._rule = rule
        self._keys = () if noise is None else noise.keys
        self._lengths: Lengths | None = None
        self._stopped: Bool[Tensor, " batch"] | None = None

    def advance(self, tokens: int, step: TokenStep) -> bool:
        """Take notice of a token, and return whether no row needs another."""
        if self._rule is None:
            return False
        if self._lengths is None or self._stopped is None:
            self._lengths = torch.zeros_like(step.token)
            self._stopped = torch.zeros_like(step.token, dtype=torch.bool)
        self._lengths = self._lengths.where(self._stopped, tokens)
        keys = self._keys or (0,) * len(step.token)
        self._stopped = self._stopped | self._rule.stops(RowState(tokens, step.token, step.hidden, keys))
        return bool(self._stopped.all())

    def go_on_from(self, rows: Int64[Tensor, " batch"]) -> None:
        """Let each row have stopped where another has."""
        if self._lengths is not None and self._stopped is not None:
            self._lengths = self._lengths[rows]
            self._stopped = self._stopped[rows]

    def kept(
        self, decode: Callable[[int], Float[Tensor, "batch time dim"]], tokens: int, executed: int | None
    ) -> Lengths | None:
        """Return how many tokens each row keeps of those so far; None where all keep all."""
        looked = None if self._rule is None else self._rule.look_back(decode, tokens, executed)
        return self._lengths if looked is None else looked


def _make_chunk(
    source: TokenSource, ids: list[Tensor], log_probabilities: list[Tensor], depths: _Depths, executed: int | None
) -> Chunk:
    tokens, certainties = torch.stack(ids, 1), torch.stack(log_probabilities, 1)

    def decode(number: int) -> Tensor:
        return source.make_chunk(tokens, certainties, torch.full_like(tokens[:, 0], number)).actions

    return source.make_chunk(tokens, certainties, depths.kept(decode, len(ids), executed))


class TokenPredictor(BasePredictor):
    """Generate tokens one by one until the sequence or every row has ended, or a stopping rule wants a chunk."""

    options = frozenset(
        {
            *("num_tokens", "temperature", "top_k", "greedy", "num_actions", "remainder"),
            *("samples", "choose", "commit", "stop"),
        }
    )
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
        """Read the observation, and return what gives one token after the other, and actions of those so far.

        Where the decoding asks for several samples of every row, noise is for all of them, and tokens are of all.
        """

    @property
    def length(self) -> int:
        """Return the longest sequence, an end included."""
        return self.limits.longest + (self.eos is not None)

    @property
    def default_decoding(self) -> TokenDecoding:
        return self.limits.usual

    def check_decoding(self, decoding: Decoding) -> None:
        """Raise `InvalidOption` for a decoding beyond the limits, or with a rule that is not for this policy."""
        self.limits.check(decoding)
        assert isinstance(decoding, TokenDecoding)
        self.check_choosing(decoding)
        if decoding.stop is not None:
            decoding.stop.check(self, decoding.executed)

    def make_decodings(self, options: DecodingOptions) -> Iterator[TokenDecoding]:
        """Yield a decoding for every prefix length and every stopping rule that the options ask for."""
        limits = self.limits
        usual = limits.usual
        greedy = usual.greedy and not options.sampling if options.greedy is None else options.greedy
        # The most likely tokens are the same at any temperature, and so is their name.
        usual_temperature = TokenDecoding.temperature if greedy else usual.temperature
        temperature = usual_temperature if options.temperature is None else options.temperature
        remainder = usual.remainder if options.remainder is None else options.remainder
        counted = limits.longest if self.anytime else None
        for count in options.num_tokens or (counted,):
            for stop in options.stop or (None,):
                yield TokenDecoding(
                    count,
                    temperature,
                    options.top_k,
                    greedy,
                    options.num_actions,
                    remainder,
                    stop,
                    **options.choice,
                )

    @property
    def anytime(self) -> bool:
        """Return whether every prefix of the tokens decodes."""
        return self.limits.prefix_decodable

    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, rule: StoppingRule
    ) -> Iterator[Chunk]:
        """Yield the chunk of the whole sequence, and of those prefixes that the rule wants, where prefixes decode.

        A row that has stopped keeps the tokens it has, while others go on.
        """
        length = decoding.num_tokens or self.length
        drawn = None if noise is None else noise.repeated(decoding.samples)
        source = self.start_tokens(values, tasks, decoding, drawn)
        depths = _Depths(decoding.stop, drawn)
        anytime = self.anytime
        ids: list[Tensor] = []
        log_probabilities: list[Tensor] = []
        for place in range(length):
            step = source.next_token(place)
            ids.append(step.token)
            log_probabilities.append(step.log_probability)
            all_stopped = depths.advance(place + 1, step)
            # The rule is asked even where prefixes do not decode: it measures how long tokens take.
            wanted = rule.wants_chunk(step.log_probability) and anytime
            finished = place + 1 == length or all_stopped or self._all_ended(ids)
            make_chunk = partial(_make_chunk, source, ids, log_probabilities, depths, decoding.executed)
            if wanted or finished:
                yield make_chunk()
            if finished:
                return
            rows = rule.survivors(place + 1, make_chunk)
            if rows is not None:
                ids = [each[rows] for each in ids]
                log_probabilities = [each[rows] for each in log_probabilities]
                source.go_on_from(rows)
                depths.go_on_from(rows)

    def _all_ended(self, ids: list[Tensor]) -> bool:
        return self.eos is not None and bool((torch.stack(ids) == self.eos).any(0).all())
