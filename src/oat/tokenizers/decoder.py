"""From latent tokens to a chunk (paper, appendix C): in a single pass, or by a rectified flow.

Both read a memory of latent tokens, in which MASK stands for absent ones, and so decode every prefix.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from oat.errors import InvalidOption
from oat.nn.transformer import DecoderBlock, EncoderBlock, Width, make_norm, sinusoidal_positions

Memory = Float[Tensor, "batch tokens width"]
Chunk = Float[Tensor, "batch time dim"]


@dataclass(frozen=True)
class DecoderConfig:
    """The decoder's kind and size."""

    kind: Literal["single_pass", "flow"] = "single_pass"
    """One pass trained on the reconstruction error, or a rectified flow from noise."""
    layers: int = 4
    """Transformer blocks."""
    causal: bool = True
    """Single pass: whether step t sees only steps up to t, so that the first n steps cost only n steps' work."""
    flow_steps: int = 5
    """Flow: Euler steps from noise to actions."""

    def __post_init__(self) -> None:
        if self.layers < 1 or self.flow_steps < 1:
            raise InvalidOption("a decoder needs at least one layer and one flow step")


def masked_error(decoded: Chunk, target: Chunk, valid: Bool[Tensor, "batch time"]) -> Float[Tensor, " batch"]:
    """Each row's mean squared error over its valid steps."""
    squares = (decoded.float() - target).square().mean(-1) * valid
    return squares.sum(1) / valid.sum(1)


class Decoder(nn.Module, ABC):
    """What a learned tokenizer needs of its decoder."""

    uses_noise: ClassVar[bool] = False

    @abstractmethod
    def errors(
        self, memory: Memory, target: Chunk, valid: Bool[Tensor, "batch time"], generator: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """What training minimises, for each row."""

    @abstractmethod
    def generate(self, memory: Memory, steps: int, noise: Chunk | None = None) -> Float[Tensor, "batch steps dim"]:
        """The chunk's first `steps` steps."""


class SinglePassDecoder(Decoder):
    """Queries at sinusoidal positions read the latent tokens by cross-attention; one pass gives the whole chunk."""

    queries: Tensor

    def __init__(self, horizon: int, dim: int, width: Width, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("queries", sinusoidal_positions(horizon, width.dim), persistent=False)
        self.blocks = nn.ModuleList(DecoderBlock(width) for _ in range(config.layers))
        self.norm, self.head = make_norm(width.dim), _zero_linear(width.dim, dim)

    def errors(
        self, memory: Memory, target: Chunk, valid: Bool[Tensor, "batch time"], generator: torch.Generator
    ) -> Float[Tensor, " batch"]:
        return masked_error(self.generate(memory, target.shape[1]), target, valid)

    def generate(self, memory: Memory, steps: int, noise: Chunk | None = None) -> Float[Tensor, "batch steps dim"]:
        computed = steps if self.config.causal else len(self.queries)
        x = self.queries[:computed].to(memory.dtype)[None]
        for block in self.blocks:
            x = block(x, memory, self.config.causal)
        return self.head(self.norm(x))[:, :steps]


class FlowDecoder(Decoder):
    """v̂ = Dec(Quant(z) ⊕ a^t) with a^t = (1-t)·a + t·ε, trained towards ε - a; Euler steps from t = 1 to 0 decode.

    Without noise of its own a row starts from one fixed draw, so that decoding is a function of the tokens.
    """

    uses_noise = True
    positions: Tensor
    fixed_noise: Tensor

    def __init__(self, horizon: int, dim: int, width: Width, config: DecoderConfig) -> None:
        super().__init__()
        self.config, self.horizon, self.width = config, horizon, width.dim
        self.from_action = nn.Linear(dim, width.dim)
        self.from_time = nn.Sequential(nn.Linear(width.dim, width.dim), nn.SiLU(), nn.Linear(width.dim, width.dim))
        self.blocks = nn.ModuleList(EncoderBlock(width) for _ in range(config.layers))
        self.norm, self.head = make_norm(width.dim), _zero_linear(width.dim, dim)
        self.register_buffer("positions", sinusoidal_positions(horizon, width.dim), persistent=False)
        self.register_buffer("fixed_noise", torch.randn(horizon, dim, generator=torch.Generator().manual_seed(0)))

    def velocity(self, memory: Memory, noised: Chunk, time: Float[Tensor, " batch"]) -> Chunk:
        embedded = self.from_action(noised) + self.positions
        x = torch.cat([memory, embedded], dim=1) + self.from_time(_time_features(time, self.width))[:, None]
        for block in self.blocks[:-1]:
            x = block(x)
        return self.head(self.norm(self.blocks[-1](x, last=self.horizon)))

    def errors(
        self, memory: Memory, target: Chunk, valid: Bool[Tensor, "batch time"], generator: torch.Generator
    ) -> Float[Tensor, " batch"]:
        time = torch.rand(len(target), generator=generator).to(target.device)
        noise = torch.randn(target.shape, generator=generator).to(target.device)
        noised = torch.lerp(target, noise, time[:, None, None])
        return masked_error(self.velocity(memory, noised, time), noise - target, valid)

    def generate(self, memory: Memory, steps: int, noise: Chunk | None = None) -> Float[Tensor, "batch steps dim"]:
        actions = self.fixed_noise.expand(memory.shape[0], -1, -1) if noise is None else noise
        size = 1 / self.config.flow_steps
        for step in range(self.config.flow_steps):
            time = torch.full((memory.shape[0],), 1 - step * size, device=memory.device)
            actions = actions - size * self.velocity(memory, actions, time)
        return actions[:, :steps]


DECODERS: dict[str, type[SinglePassDecoder] | type[FlowDecoder]] = {
    "single_pass": SinglePassDecoder,
    "flow": FlowDecoder,
}


def _zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """A head that begins by predicting zero."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _time_features(time: Float[Tensor, " batch"], dim: int) -> Float[Tensor, "batch dim"]:
    """sin and cos of the flow's time at frequencies from 1 to 1000."""
    frequencies = torch.logspace(0, 3, dim // 2, device=time.device)
    angles = time[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
