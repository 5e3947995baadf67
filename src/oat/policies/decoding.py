"""How a policy draws a chunk, as a value."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from oat.errors import InvalidOption
from oat.policies.choosing import MEDOID, ChoosingRule
from oat.policies.stopping import DepthRule

_PEOPLES_TEMPERATURE = 0.5  # acts well on PushT whether 8 or 16 actions are executed; 1 only with 8, 0 only with 16

Each = TypeVar("Each")


class Decoding(ABC):
    """Say how one kind of policy draws a chunk; every kind has a frozen dataclass of its own."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Return a name that is short and unique among the decodings of a kind; records and tables carry it."""

    def drawing(self, samples: int) -> "Decoding":
        """Return how so many chunks are drawn at random; as here, where there is nothing to draw."""
        return self


@dataclass(frozen=True, kw_only=True)
class SampledDecoding(Decoding):
    """Draw several chunks for every row, and execute one of them; policies that draw at random have these fields."""

    samples: int = 1
    """N: chunks that are drawn for every row, in one batch."""
    choose: ChoosingRule = MEDOID
    """Which of several samples is executed."""
    commit: int = 0
    """d: actions that will be executed before the chunk is there. Of the samples, those are chosen among whose first
    d actions agree with these."""
    executed: int | None = None
    """Actions that are executed of each chunk: choosing and stopping look at as many from now on; None for all."""

    def check_choice(self) -> None:
        """Raise `InvalidOption` for numbers that cannot be."""
        if self.samples < 1:
            raise InvalidOption(f"samples must be at least 1, got {self.samples}")
        if self.commit < 0 or (self.executed is not None and self.executed < 1):
            raise InvalidOption(
                f"commit must be at least 0 and executed at least 1, got {self.commit} and {self.executed}"
            )
        if self.commit and self.samples == 1:
            raise InvalidOption(f"to commit to {self.commit} actions, choose among several samples: 1 is drawn")
        if self.choose != MEDOID and self.samples == 1:
            raise InvalidOption(f"{self.choose.label} chooses among several samples: 1 is drawn")

    @property
    def looks_at_execution(self) -> bool:
        """Return whether it matters how many actions will be executed."""
        return self.samples > 1

    def length(self, horizon: int) -> int:
        """Return how many actions a chunk has, of the horizon that the policy was trained for."""
        return horizon

    @property
    def choice_words(self) -> list[str]:
        """Return the part of the name that tells how one of several samples is chosen."""
        words = [f"{self.choose.label}-of-{self.samples}"] if self.samples > 1 else []
        return [*words, f"commit-{self.commit}"] if self.commit else words

    @abstractmethod
    def weakened(self) -> "SampledDecoding":
        """Return the same after a single step, which a policy can be contrasted with itself by."""


@dataclass(frozen=True)
class TokenDecoding(SampledDecoding):
    """Choose tokens of an autoregressive policy, one after the other; the defaults sample as the paper does."""

    num_tokens: int | None = None
    """K: stop after this many tokens, where every prefix decodes; None for all."""
    temperature: float | tuple[float, ...] = 1.0
    """Divides the logits: below 1 sharper, above 1 flatter; for all tokens, or for the first, the second, …"""
    top_k: int | tuple[int | None, ...] | None = 10
    """Sample among the most likely tokens only; None among all; for all tokens, or for the first, the second, …"""
    greedy: bool = False
    """Always the most likely token."""
    num_actions: int | None = None
    """Decode only the chunk's first actions, which is less work; None for all."""
    remainder: bool = False
    """Whether a regression makes exact what the tokens chose, in policies that were trained for it."""
    stop: DepthRule | None = None
    """Lets each row stop by itself before its last token; None lets none."""

    def __post_init__(self) -> None:
        temperatures = each_position(self.temperature)
        if not temperatures or not all(0 < each < float("inf") for each in temperatures):
            raise InvalidOption(
                f"temperature must be positive and finite, got {self.temperature}; for its limit 0 use greedy"
            )
        counts = (self.num_tokens, *each_position(self.top_k))
        if self.top_k == () or any(count is not None and count < 1 for count in counts):
            raise InvalidOption(f"num_tokens and top_k must be at least 1, got {self.num_tokens} and {self.top_k}")
        self.check_choice()
        if self.choose.needs_likelihood and self.stop is not None:
            raise InvalidOption(f"{self.choose.label} compares samples of equally many tokens: leave out stop")
        if self.greedy and self.samples > 1:
            raise InvalidOption(f"the most likely tokens are always the same: {self.samples} samples must be sampled")
        if self.greedy and (self.temperature, self.top_k) != (TokenDecoding.temperature, TokenDecoding.top_k):
            raise InvalidOption("greedy takes the most likely tokens: leave out temperature and top_k")

    @property
    def name(self) -> str:
        """Return the number of tokens, how sampling differs from the paper's, and whether a remainder is added."""
        words = [self.length_name]
        usual = TokenDecoding()
        if self.greedy:
            words.append("greedy")
        elif self.temperature != usual.temperature:
            words.append(f"T={','.join(f'{each:g}' for each in each_position(self.temperature))}")
        if self.top_k != usual.top_k and not self.greedy:
            words.append(f"top-{','.join(str(each or 'all') for each in each_position(self.top_k))}")
        words += self.choice_words
        if self.stop is not None:
            words.append(self.stop.name)
        if self.remainder:
            words.append("remainder")
        return " ".join(words)

    @property
    def looks_at_execution(self) -> bool:
        """Return whether it matters how many actions will be executed, to a rule that chooses or stops."""
        return self.samples > 1 or self.stop is not None

    def length(self, horizon: int) -> int:
        """Return how many actions a chunk has: those that are decoded."""
        return self.num_actions or horizon

    @property
    def in_one_piece(self) -> bool:
        """Return whether all tokens are drawn alike and none is asked about, so that a graph may hold the loop."""
        alike = not isinstance(self.temperature, tuple) and not isinstance(self.top_k, tuple)
        return alike and self.samples == 1 and self.stop is None

    @property
    def most_likely(self) -> "TokenDecoding":
        """Return the same with the most likely tokens, which are the same at any temperature."""
        return replace(self, temperature=TokenDecoding.temperature, top_k=TokenDecoding.top_k, greedy=True, samples=1)

    def drawing(self, samples: int) -> "TokenDecoding":
        """Return how so many chunks are sampled, of all tokens."""
        return replace(self, samples=samples, greedy=False, stop=None)

    def weakened(self) -> "TokenDecoding":
        """Return the same after the first token."""
        return replace(self, num_tokens=1, stop=None)

    @property
    def length_name(self) -> str:
        """Return the first word of the name, which tells the number of tokens."""
        return f"K={self.num_tokens or 'all'}"


@dataclass(frozen=True)
class Denoising(SampledDecoding):
    """Sample a chunk from a diffusion policy by denoising it in steps."""

    steps: int = 10
    """Denoising steps; fewer are faster and coarser."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InvalidOption(f"at least one denoising step is needed, got {self.steps}")
        self.check_choice()

    @property
    def name(self) -> str:
        """Return the number of denoising steps in words, and how one of several samples is chosen."""
        return " ".join((f"{self.steps} steps", *self.choice_words))

    def drawing(self, samples: int) -> "Denoising":
        """Return how so many chunks are denoised."""
        return replace(self, samples=samples)

    def weakened(self) -> "Denoising":
        """Return the same with a single denoising step."""
        return replace(self, steps=1)


@dataclass(frozen=True)
class OnePass(Decoding):
    """Take the chunk that a regression policy predicts; there is nothing to choose."""

    @property
    def name(self) -> str:
        """Return that there is a single pass."""
        return "one pass"


@dataclass(frozen=True)
class DecodingOptions:
    """What a user may ask of a policy whose kind is not known yet; a kind refuses what means nothing to it."""

    num_tokens: tuple[int | None, ...] = ()
    """Prefix lengths, one decoding for each; by default all tokens, counted where every prefix decodes."""
    temperature: float | tuple[float, ...] | None = None
    """What divides the logits; None as the policy was trained for."""
    top_k: int | tuple[int | None, ...] | None = TokenDecoding.top_k
    greedy: bool | None = None
    """Whether to take the most likely token; None as the policy was trained for, unless sampling is described."""
    num_actions: int | None = None
    remainder: bool | None = None
    """Whether a regression makes the tokens' choice exact; None as the policy was trained for."""
    denoising_steps: int | None = None
    samples: int = 1
    choose: ChoosingRule = MEDOID
    commit: int = 0
    stop: tuple[DepthRule, ...] = ()
    """Rules by which rows stop, one decoding for each."""

    @classmethod
    def paper(cls, num_tokens: tuple[int | None, ...] = (), num_actions: int | None = None) -> "DecodingOptions":
        """Return what the paper's policies do: sample among the ten most likely tokens, which decide alone."""
        return cls(num_tokens, TokenDecoding.temperature, greedy=False, num_actions=num_actions, remainder=False)

    @property
    def sampling(self) -> bool:
        """Return whether these options describe how to sample."""
        return {"temperature", "top_k", "samples"} & self.changed() != set()

    @property
    def choice(self) -> dict[str, Any]:
        """Return the options that all decodings of several samples have."""
        return {"samples": self.samples, "choose": self.choose, "commit": self.commit}

    def only(self, names: Collection[str]) -> "DecodingOptions":
        """Return the options without those of other names, which then have their defaults."""
        return DecodingOptions(**{name: getattr(self, name) for name in names})

    def changed(self) -> set[str]:
        """Return the names of the options that do not have their default value; leaving out K does not count."""
        given = {each.name for each in fields(self) if getattr(self, each.name) != each.default}
        return given - {"num_tokens"} if self.num_tokens == (None,) else given


@dataclass(frozen=True)
class TokenLimits:
    """What a policy over a tokenizer can decode."""

    tokenizer: str
    prefix_decodable: bool
    longest: int
    """The most tokens of a chunk, an end of the sequence not counted."""
    action_horizon: int
    remainder: bool = False
    """Whether the policy has a remainder."""
    greedy: bool = False
    """Whether it takes the most likely tokens, unless demonstrators differed or it is asked to sample."""
    varied: bool = False
    """Whether demonstrators differed, so that it samples, and leaves out the remainder, unless it is asked not to: the
    mean of people's ways, and of their hesitations, stands still for ever."""

    @property
    def usual(self) -> TokenDecoding:
        """Return how the policy decodes all tokens unless it is asked for something else."""
        if self.varied:
            return TokenDecoding(temperature=_PEOPLES_TEMPERATURE)
        return TokenDecoding(greedy=self.greedy, remainder=self.remainder)

    def check(self, decoding: Decoding) -> None:
        """Raise `InvalidOption` for a decoding that is beyond these limits."""
        if not isinstance(decoding, TokenDecoding):
            raise InvalidOption(f"an autoregressive policy decodes by TokenDecoding, got {decoding}")
        if decoding.remainder and not self.remainder:
            raise InvalidOption("the policy was trained without a remainder, which oat train --remainder 10 adds")
        if decoding.num_actions is not None and not 1 <= decoding.num_actions <= self.action_horizon:
            raise InvalidOption(f"num_actions must be 1…{self.action_horizon}, got {decoding.num_actions}")
        if decoding.stop is not None and not self.prefix_decodable:
            raise InvalidOption(f"{self.tokenizer} has no prefixes that decode: stop must be left out")
        most = decoding.num_tokens or self.longest
        if decoding.stop is not None and decoding.stop.most_tokens > most:
            raise InvalidOption(f"{decoding.stop.name} must stop after 1…{most} tokens")
        if decoding.num_tokens is None:
            return
        if not self.prefix_decodable:
            raise InvalidOption(f"{self.tokenizer} has no prefixes that decode: num_tokens must be left out")
        if decoding.num_tokens > self.longest:
            raise InvalidOption(f"num_tokens must be 1…{self.longest}, got {decoding.num_tokens}")


def each_position(values: Each | tuple[Each, ...]) -> tuple[Each, ...]:
    """Return the values that positions have, of which the last holds for those that follow."""
    return values if isinstance(values, tuple) else (values,)


def at_position(values: Each | tuple[Each, ...], place: int) -> Each:
    """Return the value at a place, counted from 0."""
    every = each_position(values)
    return every[min(place, len(every) - 1)]
