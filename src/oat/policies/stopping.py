"""When generation stops: at its end, after every step, before a deadline, or by a rule of your own.

A new rule for the whole batch is one class, whose `wants_chunk` is asked after every step, and one line in
`STOPPING_RULES`. A new rule for each row by itself, which is part of a decoding, is one frozen dataclass, whose `stops`
is asked after every token, and one line in `DEPTH_RULES`.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.data.shuffle import derive_key
from oat.errors import InvalidOption, unknown_name

if TYPE_CHECKING:
    from oat.policies.error_head import ErrorHead
    from oat.policies.predictor import BasePredictor, Chunk

RANDOM_DEPTH = "random-depth"
"""How records name depths that were drawn at random."""
_REMEMBERED = 100  # durations that an estimate is made of
_CAREFUL = 0.9  # the quantile of them that is reckoned with


class StepTimes:
    """Remember how long steps took lately, and making a chunk of what there was, in seconds."""

    def __init__(self) -> None:
        self.step: deque[float] = deque(maxlen=_REMEMBERED)
        self.finish: deque[float] = deque(maxlen=_REMEMBERED)

    def until_next_chunk(self) -> float:
        """Return a careful estimate of one more step and the chunk after it; infinite while nothing is known."""
        return _quantile(self.step) + _quantile(self.finish)


class StoppingRule:
    """Decide after which steps a chunk is made; this one makes it of the whole sequence, at its end.

    A rule is made for one prediction, when that begins. A predictor that gives one chunk stops at the first that its
    rule wants; one that streams goes on to the next.
    """

    watches: ClassVar[bool] = False
    """Whether it has to be asked after every step; otherwise all of them may be done in one piece."""

    def start(self, times: StepTimes) -> None:
        """Take notice of how long steps took in earlier predictions of as many rows."""

    def wants_chunk(self, log_probabilities: Float[Tensor, " batch"] | None = None) -> bool:
        """Return whether to make a chunk now; asked after every step, the last one excepted.

        Where steps are tokens, their log-probabilities tell how sure the policy was of the last one.
        """
        return False

    def got_chunk(self) -> None:
        """Take notice that the chunk has been made."""

    def survivors(self, steps: int, make_chunk: Callable[[], "Chunk"]) -> Int64[Tensor, " batch"] | None:
        """Return the row from whose past each row goes on after so many steps; None lets each go on from its own."""
        return None


class Guiding(StoppingRule):
    """Let another rule decide when a chunk is made; in between, samples that fit badly go on from better ones."""

    watches = True

    def __init__(
        self,
        rule: StoppingRule,
        survivors: Callable[[int, Callable[[], "Chunk"]], Int64[Tensor, " batch"] | None],
    ) -> None:
        self._rule = rule
        self._survivors = survivors

    def wants_chunk(self, log_probabilities: Float[Tensor, " batch"] | None = None) -> bool:
        """Return what the other rule says."""
        return self._rule.wants_chunk(log_probabilities)

    def survivors(self, steps: int, make_chunk: Callable[[], "Chunk"]) -> Int64[Tensor, " batch"] | None:
        """Return the rows that go on, by the chunks that there are so far."""
        return self._survivors(steps, make_chunk)


class EveryStep(StoppingRule):
    """Make a chunk after every step, as streaming does."""

    watches = True

    def wants_chunk(self, log_probabilities: Float[Tensor, " batch"] | None = None) -> bool:
        """Return True, whatever the step was."""
        return True


class Deadline(StoppingRule):
    """Make a chunk when one more step would make it late; never before the first step."""

    watches = True

    def __init__(self, milliseconds: float) -> None:
        self._last = time.perf_counter()
        self._end = self._last + milliseconds / 1e3
        self._steps = 0
        self.start(StepTimes())

    def start(self, times: StepTimes) -> None:
        """Estimate how long one more step and the chunk after it will take."""
        self._times = times
        self._needed = times.until_next_chunk()

    def wants_chunk(self, log_probabilities: Float[Tensor, " batch"] | None = None) -> bool:
        """Return whether one more step would miss the deadline, and remember how long this one took."""
        now = time.perf_counter()
        if self._steps or not self._times.step:  # the first one includes reading the observation
            self._times.step.append(now - self._last)
        self._last = now
        self._steps += 1
        return now + self._needed > self._end

    def got_chunk(self) -> None:
        """Remember how long making the chunk took."""
        self._times.finish.append(time.perf_counter() - self._last)


STOPPING_RULES: dict[str, type[StoppingRule]] = {
    "whole": StoppingRule,
    "every_step": EveryStep,
    "deadline": Deadline,
}


def make_stopping_rule(name: str, *arguments: float) -> StoppingRule:
    """Return a rule by its name, such as "deadline" with its milliseconds, or raise `UnknownName`."""
    if name not in STOPPING_RULES:
        raise unknown_name("stopping rule", name, STOPPING_RULES)
    return STOPPING_RULES[name](*arguments)


@dataclass(frozen=True)
class RowState:
    """Hold what is known of every row after some tokens."""

    tokens: int
    """How many there are so far."""
    last: Int64[Tensor, " rows"]
    """The last of them."""
    hidden: Float[Tensor, "rows dim"] | None
    """What the policy knew when it chose the last one."""
    keys: tuple[int, ...]
    """The rows' random keys."""


class DepthRule(ABC):
    """Decide for each row by itself after how many tokens it stops; tokens that were chosen before stay as they are."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Return a short name, unique among rules, which records carry."""

    def check(self, predictor: "BasePredictor", executed: int | None) -> None:
        """Raise `InvalidOption` where this rule is not for this policy, or not for so many executed actions."""
        return

    @property
    def most_tokens(self) -> int:
        """Return a number of tokens that it names itself, which a chunk must have; by default it names none."""
        return 1

    @abstractmethod
    def stops(self, state: RowState) -> Bool[Tensor, " rows"]:
        """Return which rows need no further token."""

    def look_back(
        self, decode: Callable[[int], Float[Tensor, "rows time dim"]], tokens: int, executed: int | None
    ) -> Int64[Tensor, " rows"] | None:
        """Return how many of its tokens each row keeps, from what their prefixes decode to; None lets it keep all."""
        return None


@dataclass(frozen=True)
class Fixed(DepthRule):
    """Stop after a number of tokens, as `num_tokens` does."""

    tokens: int

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise InvalidOption(f"at least one token is needed, got {self.tokens}")

    @property
    def name(self) -> str:
        """Return the number of tokens."""
        return f"fixed={self.tokens}"

    @property
    def most_tokens(self) -> int:
        """Return the number of tokens."""
        return self.tokens

    def stops(self, state: RowState) -> Bool[Tensor, " rows"]:
        """Return whether there are enough, alike for all rows."""
        return torch.full_like(state.last, state.tokens >= self.tokens, dtype=torch.bool)


@dataclass(frozen=True)
class RandomDepth(DepthRule):
    """Stop at random, after k tokens in a given share of chunks: what a rule that knows more must be better than."""

    shares: tuple[float, ...]
    """The share of chunks that have 1, 2, … tokens; they sum to 1."""

    def __post_init__(self) -> None:
        if not self.shares or min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-6:
            raise InvalidOption(f"shares of depths must be at least 0 and sum to 1, got {self.shares}")

    @classmethod
    def like(cls, counts: Mapping[int, int]) -> "RandomDepth":
        """Return the rule with the distribution of depths that were counted."""
        total = sum(counts.values())
        if not total or min(counts) < 1:
            raise InvalidOption("no chunks with tokens, whose number could be drawn alike")
        return cls(tuple(counts.get(tokens, 0) / total for tokens in range(1, max(counts) + 1)))

    @property
    def name(self) -> str:
        """Return the shares in percent."""
        return f"{RANDOM_DEPTH}={'/'.join(f'{100 * share:.3g}' for share in self.shares)}"

    @property
    def most_tokens(self) -> int:
        """Return the largest number of tokens that has a share."""
        return max(number for number, share in enumerate(self.shares, start=1) if share)

    def stops(self, state: RowState) -> Bool[Tensor, " rows"]:
        """Return whether the depth is reached that the row's own key drew."""
        reached = sum(self.shares[: state.tokens])
        # A key of its own: the row's first random numbers choose its tokens.
        drawn = [derive_key(key, "depth") / 2**64 for key in state.keys]
        stopped = [state.tokens >= len(self.shares) or number < reached for number in drawn]
        return torch.tensor(stopped, device=state.last.device)


@dataclass(frozen=True)
class Residual(DepthRule):
    """Stop where a head is sure that the executed actions' error is small enough, in the share it is calibrated for."""

    epsilon: float
    """Root mean square of the executed actions' error, in action units."""
    head: "ErrorHead"

    def __post_init__(self) -> None:
        _check_positive("epsilon", self.epsilon)

    @property
    def name(self) -> str:
        """Return the tolerated error, and which head tells it."""
        return f"residual={self.epsilon:g}@{self.head.identity}"

    def check(self, predictor: "BasePredictor", executed: int | None) -> None:
        """Raise `InvalidOption` for another policy than the head's."""
        self.head.check(predictor, executed)

    def stops(self, state: RowState) -> Bool[Tensor, " rows"]:
        """Return where the bound of the error is within what is tolerated."""
        return self.head.bound(state) <= self.epsilon


@dataclass(frozen=True)
class Value(DepthRule):
    """Stop where a token drawn by the policy's own probabilities is not expected to lower the error by its price.

    Whatever a decoding makes of these: with the most likely tokens the drop is another.
    """

    price: float
    """What a token's time is worth: root mean square of the executed actions' error, in action units."""
    head: "ErrorHead"

    def __post_init__(self) -> None:
        _check_positive("a token's price", self.price)

    @property
    def name(self) -> str:
        """Return the price, and which head tells what a token is worth."""
        return f"value={self.price:g}@{self.head.identity}"

    def check(self, predictor: "BasePredictor", executed: int | None) -> None:
        """Raise `InvalidOption` for another policy than the head's."""
        self.head.check(predictor, executed)

    def stops(self, state: RowState) -> Bool[Tensor, " rows"]:
        """Return where the expected drop of the error is less than the price."""
        return self.head.drop(state) < self.price


@dataclass(frozen=True)
class Hindsight(DepthRule):
    """Keep of each chunk the fewest tokens that lead to nearly the same executed actions as all of them.

    All are drawn first, so that no time is saved: it tells what a rule could save that knew what further tokens say.
    """

    epsilon: float
    """Root mean square by which the executed actions may differ, in action units."""

    def __post_init__(self) -> None:
        _check_positive("epsilon", self.epsilon)

    @property
    def name(self) -> str:
        """Return by how much actions may differ."""
        return f"hindsight={self.epsilon:g}"

    def stops(self, state: RowState) -> Bool[Tensor, " rows"]:
        """Return that every row needs all of its tokens first."""
        return torch.zeros_like(state.last, dtype=torch.bool)

    def look_back(
        self, decode: Callable[[int], Float[Tensor, "rows time dim"]], tokens: int, executed: int | None
    ) -> Int64[Tensor, " rows"] | None:
        """Return after how many tokens each row first does nearly what it does after the last."""
        prefixes = torch.stack([decode(number)[:, :executed] for number in range(1, tokens + 1)])
        differences = (prefixes - prefixes[-1]).square().mean((2, 3)).sqrt()
        return (differences <= self.epsilon).int().argmax(0) + 1


DEPTH_RULES: dict[str, type[DepthRule]] = {
    "fixed": Fixed,
    "random": RandomDepth,
    "hindsight": Hindsight,
    "residual": Residual,
    "value": Value,
}


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise InvalidOption(f"{name} must be positive and finite, got {value}")


def _quantile(durations: Iterable[float]) -> float:
    ordered = sorted(durations)
    return ordered[int(_CAREFUL * len(ordered))] if ordered else float("inf")
