"""Learned tokenizers: encode → FSQ → decode, and the losses that OAT and QueST share (paper, section IV-A)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from oat.errors import InvalidOption
from oat.nn.fsq import FSQ, Grid
from oat.nn.transformer import Width
from oat.tokenizers.decoder import DECODERS, DecoderConfig
from oat.tokenizers.nested_dropout import keep_lengths
from oat.tokenizers.tokenizer import ActionSpace, ActionTokenizer
from oat.tokenizers.tokens import Tokens

Keep = Literal["uniform", "powers_of_two", "full"]

_BLOCK = 64  # chunks encoded at a time
_BORDERLINE = 1e-4  # latents nearer than this to a rounding boundary, in levels, are decided in double precision


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is minimised: reconstruction errors of prefixes."""

    keep: Keep = "uniform"
    """Distribution of prefix lengths; full is OAT×, without ordering."""
    prefixes: int = 1
    """Prefixes decoded for every encoded chunk."""
    balance: float = 0.0
    """Weight of a prefix of length K is D_K to the power of minus this, with D_K its running error: 0 weighs all
    errors alike, so that short prefixes dominate; 1 minimises the sum of log errors."""
    spread: float = 0.0
    """Weight of a repulsion between the chunks' codes at each position, which makes more of the codebook used; a share
    of the error, so that it means the same whatever the data's scale and fades as the errors do."""

    def __post_init__(self) -> None:
        if self.prefixes < 1 or not 0 <= self.balance <= 1 or self.spread < 0:
            raise InvalidOption(
                "prefixes must be ≥ 1, balance in [0, 1] and spread ≥ 0, "
                f"got {self.prefixes}, {self.balance} and {self.spread}"
            )


@dataclass(frozen=True)
class AutoencoderConfig:
    """The sizes of a learned tokenizer; the defaults are the paper's."""

    latent_horizon: int = 8
    """H_l: tokens per chunk."""
    levels: tuple[int, ...] = (8, 5, 5, 5)
    """FSQ levels; their product is the vocabulary."""
    grid: Grid = "tanh"
    """How FSQ squashes and rounds."""
    width: Width = field(default_factory=Width)
    encoder_layers: int = 2
    """Transformer blocks in the encoder."""
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)

    def __post_init__(self) -> None:
        if self.latent_horizon < 1 or self.encoder_layers < 1:
            raise InvalidOption("latent_horizon and encoder_layers must be at least 1")


@dataclass(frozen=True)
class Reconstruction:
    """What one training step saw."""

    loss: Float[Tensor, ""]
    errors: Float[Tensor, " rows"]
    """What the decoder minimises for every prefix: for the single pass, its mean squared error in model space."""
    lengths: Int64[Tensor, " rows"]


class AutoencoderTokenizer(ActionTokenizer):
    """Latent tokens of an encoder, quantized by FSQ, decoded in one pass; a learned MASK stands for absent tokens."""

    running_errors: Tensor

    def __init__(self, space: ActionSpace, config: AutoencoderConfig, encoder: nn.Module) -> None:
        super().__init__(space)
        self.config, width = config, config.width.dim
        self.fsq = FSQ(config.levels, config.grid)
        self.encoder = encoder
        self.from_code = nn.Linear(self.fsq.dim, width)
        self.mask = nn.Parameter(torch.randn(width) * 0.02)
        self.token_positions = nn.Parameter(torch.randn(config.latent_horizon, width) * 0.02)
        decoder = DECODERS[config.decoder.kind]
        self.decoder = decoder(space.action_horizon, space.model_dim, config.width, config.decoder)
        self.register_buffer("running_errors", torch.ones(config.latent_horizon))  # D_K, for the objective's weights

    @property
    def vocab_size(self) -> int:
        return self.fsq.vocab_size

    @property
    def max_tokens(self) -> int:
        return self.config.latent_horizon

    def encode_normalized(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Tokens:
        """Ids that depend on nothing but the chunk.

        The last bits of float32 sums change with the batch's size, the threads and the device. Latents so near to a
        rounding boundary that this could matter are computed again in float64, where it cannot.
        """
        with torch.autocast(actions.device.type, enabled=False):
            positions = self._positions(self.encoder, actions, valid_mask)
            ids = self.fsq.encode(positions)
            unsure = torch.nonzero(self.fsq.margin(positions).amin(-1) < _BORDERLINE).squeeze(-1)
            if len(unsure):
                exact = self._positions(self._encoder_in_double(), actions[unsure].double(), valid_mask[unsure])
                ids[unsure] = self.fsq.encode(exact)
        return Tokens(ids, torch.full((len(ids),), ids.shape[1], device=ids.device))

    def _positions(
        self, encoder: Callable[..., Tensor], actions: Tensor, valid_mask: Tensor
    ) -> Float[Tensor, "batch tokens latent"]:
        """A block at a time: on CPU a block's activations should fit the cache."""
        block = _BLOCK if actions.device.type == "cpu" else max(1, len(actions))
        firsts = range(0, max(1, len(actions)), block)
        latents = [encoder(actions[i : i + block], valid_mask[i : i + block]) for i in firsts]
        return self.fsq.position(torch.cat(latents))

    def _encoder_in_double(self) -> Callable[..., Tensor]:
        doubles: dict[str, Any] = {
            name: tensor.double() if tensor.is_floating_point() else tensor
            for name, tensor in (*self.encoder.named_parameters(), *self.encoder.named_buffers())
        }
        return lambda *inputs: torch.func.functional_call(self.encoder, doubles, inputs)

    @property
    def uses_noise(self) -> bool:
        return self.decoder.uses_noise

    def decode_normalized(
        self, tokens: Tokens, steps: int, noise: Float[Tensor, "batch time dim"] | None = None
    ) -> tuple[Float[Tensor, "batch steps dim"], Bool[Tensor, " batch"]]:
        missing = self.max_tokens - tokens.ids.shape[1]
        codes = self.fsq.decode(nn.functional.pad(tokens.ids, (0, max(missing, 0)))[:, : self.max_tokens])
        actions = self.decoder.generate(self.memory(codes, tokens.lengths), steps, noise)
        return actions, torch.ones(actions.shape[0], dtype=torch.bool, device=actions.device)

    def memory(
        self, codes: Float[Tensor, "batch tokens latent"], lengths: Int64[Tensor, " batch"]
    ) -> Float[Tensor, "batch tokens width"]:
        """What the decoder reads: embedded codes, MASK past each row's length, and positions."""
        kept = torch.arange(self.max_tokens, device=codes.device) < lengths[:, None]
        return torch.where(kept[..., None], self.from_code(codes), self.mask) + self.token_positions

    def forward(
        self,
        actions: Float[Tensor, "batch time dim"],
        valid_mask: Bool[Tensor, "batch time"],
        generator: torch.Generator,
    ) -> Reconstruction:
        """One training step's loss on normalised chunks (paper, algorithm 1), over several prefixes of each."""
        objective = self.config.objective
        latents = self.encoder(actions, valid_mask)
        codes = self.fsq(latents)
        sampled = keep_lengths(objective.keep).sample(len(actions), objective.prefixes, self.max_tokens, generator)
        lengths = sampled.to(actions.device).flatten()
        memory = self.memory(codes.repeat_interleave(objective.prefixes, 0), lengths)
        targets = actions.repeat_interleave(objective.prefixes, 0)
        errors = self.decoder.errors(memory, targets, valid_mask.repeat_interleave(objective.prefixes, 0), generator)
        loss = self._weigh(errors, lengths)
        if objective.spread:
            loss = loss + objective.spread * loss.detach() * crowding(self.fsq.values(self.fsq.position(latents)))
        return Reconstruction(loss, errors.detach(), lengths)

    def _weigh(self, errors: Float[Tensor, " rows"], lengths: Int64[Tensor, " rows"]) -> Float[Tensor, ""]:
        """Σ w_K · error with w_K = D_K^-balance, scaled so that the weights' mean is 1."""
        balance = self.config.objective.balance
        if balance == 0:
            return errors.mean()
        if self.training:
            self._track(errors.detach(), lengths)
        weights = self.running_errors.clamp_min(1e-8).pow(-balance)[lengths - 1]
        return (weights / weights.mean() * errors).mean()

    def _track(self, errors: Float[Tensor, " rows"], lengths: Int64[Tensor, " rows"]) -> None:
        """Follow D_K slowly; lengths that this batch does not hold keep theirs."""
        sums = torch.zeros_like(self.running_errors).index_add_(0, lengths - 1, errors.float())
        counts = torch.zeros_like(self.running_errors).index_add_(0, lengths - 1, torch.ones_like(errors).float())
        seen = sums / counts.clamp_min(1)
        self.running_errors.lerp_(torch.where(counts > 0, seen, self.running_errors), 0.02)


def crowding(codes: Float[Tensor, "batch tokens latent"]) -> Float[Tensor, ""]:
    """How near the chunks' codes are to each other, at each position: low when they are spread evenly.

    The log of the mean of exp(-2 d²) over all pairs, the uniformity of https://arxiv.org/abs/2005.10242.
    """
    points = codes.transpose(0, 1)
    nearness = torch.exp(-2 * torch.cdist(points, points).square())
    pairs = nearness.sum((1, 2)) - len(codes)  # but for each with itself
    return torch.log(pairs / max(1, len(codes) * (len(codes) - 1)) + 1e-6).mean()
