"""Decoders from latent tokens to a chunk (paper, appendix C): in a single pass, or by a rectified flow.

Both read a memory of latent tokens, in which MASK stands for absent ones, and so decode every prefix.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from oat.nn.transformer import DecoderBlock, EncoderBlock, make_norm, sinusoidal_positions
from oat.nn.width import Width
from oat.tokenizers.config import DecoderConfig

Memory = Float[Tensor, "batch tokens width"]
Chunk = Float[Tensor, "batch time dim"]
FirstActions = Float[Tensor, "batch num_actions dim"]


def masked_error(decoded: Chunk, target: Chunk, valid: Bool[Tensor, "batch time"]) -> Float[Tensor, " batch"]:
    """Return each row's mean squared error over its valid steps."""
    # float32, whatever the precision of the pass: squares of small differences vanish in bfloat16's 8 bits.
    squares = (decoded.float() - target).square().mean(-1) * valid
    return squares.sum(1) / valid.sum(1)


class Decoder(nn.Module, ABC):
    """Turn latent tokens into chunks in model space, for a learned tokenizer."""

    uses_noise: ClassVar[bool] = False

    @abstractmethod
    def errors(
        self, memory: Memory, target: Chunk, valid: Bool[Tensor, "batch time"], generator: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """Return what training minimises, for each row."""

    @abstractmethod
    def generate(self, memory: Memory, num_actions: int, noise: Chunk | None = None) -> FirstActions:
        """Return the chunk's first actions; each row starts from its own noise, if it is given."""


class SinglePassDecoder(Decoder):
    """Decode in one pass: queries at sinusoidal positions read the latent tokens by cross-attention."""

    queries: Tensor

    def __init__(self, horizon: int, dim: int, width: Width, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("queries", sinusoidal_positions(horizon, width.dim), persistent=False)
        self.blocks = nn.ModuleList(DecoderBlock(width) for _ in range(config.layers))
        self.norm = make_norm(width.dim)
        self.head = _zero_linear(width.dim, dim)

    def errors(
        self, memory: Memory, target: Chunk, valid: Bool[Tensor, "batch time"], generator: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """Return the mean squared error of the reconstruction."""
        return masked_error(self.generate(memory, target.shape[1]), target, valid)

    def generate(self, memory: Memory, num_actions: int, noise: Chunk | None = None) -> FirstActions:
        """Return the first actions; where step t sees only steps up to t, no others are computed."""
        computed = num_actions if self.config.causal else len(self.queries)
        x = self.queries[:computed].to(memory.dtype)[None]
        for block in self.blocks:
            x = block(x, memory, self.config.causal)
        return self.head(self.norm(x))[:, :num_actions]


class FlowDecoder(Decoder):
    """Decode by a rectified flow from noise to actions.

    v̂ = Dec(Quant(z) ⊕ a^t) with a^t = (1-t)·a + t·ε is trained towards ε - a; Euler steps from t = 1 to 0 decode.
    Without noise of its own a row starts from one fixed draw, so that decoding is a function of the tokens.
    """

    uses_noise = True
    positions: Tensor
    fixed_noise: Tensor

    def __init__(self, horizon: int, dim: int, width: Width, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.horizon = horizon
        self.width = width.dim
        self.from_action = nn.Linear(dim, width.dim)
        self.from_time = nn.Sequential(nn.Linear(width.dim, width.dim), nn.SiLU(), nn.Linear(width.dim, width.dim))
        self.blocks = nn.ModuleList(EncoderBlock(width) for _ in range(config.layers))
        self.norm = make_norm(width.dim)
        self.head = _zero_linear(width.dim, dim)
        self.register_buffer("positions", sinusoidal_positions(horizon, width.dim), persistent=False)
        # Stored with the weights, unlike the positions: nobody promises that another PyTorch draws the same numbers.
        self.register_buffer("fixed_noise", torch.randn(horizon, dim, generator=torch.Generator().manual_seed(0)))

    def velocity(self, memory: Memory, noised: Chunk, time: Float[Tensor, " batch"]) -> Chunk:
        """Return v̂: the predicted direction from the actions to the noise, at each row's time."""
        embedded = self.from_action(noised) + self.positions
        x = torch.cat([memory, embedded], dim=1) + self.from_time(_time_features(time, self.width))[:, None]
        for block in self.blocks[:-1]:
            x = block(x)
        # Only the actions' outputs are read, so the last block does not compute the latent tokens'.
        return self.head(self.norm(self.blocks[-1](x, last=self.horizon)))

    def errors(
        self, memory: Memory, target: Chunk, valid: Bool[Tensor, "batch time"], generator: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """Return the squared error of the velocity at a random time of each row."""
        # Drawn on the CPU and moved: a seed then gives the same numbers on every device.
        time = torch.rand(len(target), generator=generator).to(target.device)
        noise = torch.randn(target.shape, generator=generator).to(target.device)
        noised = torch.lerp(target, noise, time[:, None, None])
        return masked_error(self.velocity(memory, noised, time), noise - target, valid)

    def generate(self, memory: Memory, num_actions: int, noise: Chunk | None = None) -> FirstActions:
        """Return the first actions of the chunk at the flow's end; its attention is not causal: all are computed."""
        actions = self.fixed_noise.expand(memory.shape[0], -1, -1) if noise is None else noise
        size = 1 / self.config.flow_steps
        for step in range(self.config.flow_steps):
            time = torch.full((memory.shape[0],), 1 - step * size, device=memory.device)
            actions = actions - size * self.velocity(memory, actions, time)
        return actions[:, :num_actions]


DECODERS: dict[str, type[SinglePassDecoder] | type[FlowDecoder]] = {
    "single_pass": SinglePassDecoder,
    "flow": FlowDecoder,
}


def _zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a head that begins by predicting zero, which is the centre of normalised actions."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _time_features(time: Float[Tensor, " batch"], dim: int) -> Float[Tensor, "batch dim"]:
    """Return sin and cos of the flow's time at frequencies from 1 to 1000."""
    frequencies = torch.logspace(0, 3, dim // 2, device=time.device)
    angles = time[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
