"""How a policy draws a chunk, as a value; and the random numbers for it, which belong to rows and not to batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from oat.data.shuffle import derive_key
from oat.errors import InvalidOption


@dataclass(frozen=True)
class TokenDecoding:
    """Sampling tokens from an autoregressive policy."""

    num_tokens: int | None = None
    """K: stop after this many tokens, where every prefix decodes; None for all."""
    temperature: float = 1.0
    """Divides the logits: below 1 sharper, above 1 flatter."""
    top_k: int | None = 10
    """Sample among the most likely tokens only; None among all."""
    greedy: bool = False
    """Always the most likely token."""
    num_actions: int | None = None
    """Decode only the chunk's first actions, which is less work; None for all."""

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise InvalidOption(f"temperature must be positive, got {self.temperature}; for its limit 0 use greedy")
        if (self.num_tokens is not None and self.num_tokens < 1) or (self.top_k is not None and self.top_k < 1):
            raise InvalidOption(f"num_tokens and top_k must be at least 1, got {self.num_tokens} and {self.top_k}")


@dataclass(frozen=True)
class Denoising:
    """Sampling a chunk from a diffusion policy."""

    steps: int = 10
    """Denoising steps; fewer are faster and coarser."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InvalidOption(f"at least one denoising step is needed, got {self.steps}")


Decoding = TokenDecoding | Denoising


@dataclass(frozen=True)
class TokenLimits:
    """What a policy over a tokenizer can decode."""

    tokenizer: str
    prefix_decodable: bool
    longest: int
    action_horizon: int

    def check(self, decoding: Decoding) -> None:
        """Refuse what is beyond them."""
        if not isinstance(decoding, TokenDecoding):
            raise InvalidOption(f"an autoregressive policy decodes by TokenDecoding, got {decoding}")
        if decoding.num_actions is not None and not 1 <= decoding.num_actions <= self.action_horizon:
            raise InvalidOption(f"num_actions must be 1…{self.action_horizon}, got {decoding.num_actions}")
        if decoding.num_tokens is None:
            return
        if not self.prefix_decodable:
            raise InvalidOption(f"{self.tokenizer} has no prefixes that decode: num_tokens must be left out")
        if decoding.num_tokens > self.longest:
            raise InvalidOption(f"num_tokens must be 1…{self.longest}, got {decoding.num_tokens}")


@dataclass(frozen=True)
class Noise:
    """The random numbers of each row: a function of its key alone, whatever batch it is in."""

    keys: tuple[int, ...]

    @classmethod
    def of(cls, seeds: Sequence[int], chunks: Sequence[int]) -> "Noise":
        """For the given chunk of the episode with the given seed, one pair for every row."""
        if len(seeds) != len(chunks):
            raise InvalidOption(f"every row of noise has a seed and a chunk, got {len(seeds)} and {len(chunks)}")
        return cls(tuple(derive_key(seed, chunk) for seed, chunk in zip(seeds, chunks, strict=True)))

    def __len__(self) -> int:
        return len(self.keys)

    def uniform(self, *shape: int) -> Float[Tensor, "rows ..."]:
        return torch.stack([torch.rand(shape, generator=_generator(key)) for key in self.keys])

    def normal(self, *shape: int) -> Float[Tensor, "rows ..."]:
        return torch.stack([torch.randn(shape, generator=_generator(key)) for key in self.keys])


def _generator(key: int) -> torch.Generator:
    return torch.Generator().manual_seed(key % 2**63)


def gumbel(uniform: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Noise that, added to logits, makes the largest a sample from their softmax."""
    return -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))


def choose(
    logits: Float[Tensor, "batch vocab"], decoding: TokenDecoding, noise: Float[Tensor, "batch vocab"] | None
) -> Int64[Tensor, " batch"]:
    """One token for every row."""
    if decoding.greedy or noise is None:
        return logits.argmax(-1)
    likely, ids = logits.topk(min(decoding.top_k or logits.shape[-1], logits.shape[-1]))
    drawn = (likely / decoding.temperature + noise.gather(1, ids)).argmax(-1, keepdim=True)
    return ids.gather(1, drawn)[:, 0]
