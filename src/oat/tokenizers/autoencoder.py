"""Learned tokenizers: encode → quantize → decode, and the losses that OAT and QueST share (paper, section IV-A)."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from oat.nn.lattice import Lattice
from oat.nn.precision import in_double
from oat.nn.quantizers import make_quantizer
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.config import AutoencoderConfig
from oat.tokenizers.decoder import DECODERS, SinglePassDecoder
from oat.tokenizers.nested_dropout import keep_lengths
from oat.tokenizers.smoothness import one_step_ahead, roughness
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens

_BLOCK = 64  # chunks encoded at a time
_BORDERLINE = 1e-4  # latents nearer than this to a rounding boundary, in levels, are decided in double precision


@dataclass(frozen=True)
class Reconstruction:
    """Hold the loss of one training step and the errors that it is made of."""

    loss: Float[Tensor, ""]
    errors: Float[Tensor, " rows"]
    """Error of every decoded prefix that the decoder minimises: of the single pass, the MSE in model space."""
    lengths: Int64[Tensor, " rows"]


class AutoencoderTokenizer(BaseTokenizer):
    """Quantize the latent tokens of an encoder and decode them; a learned MASK stands for absent tokens."""

    config: AutoencoderConfig
    running_errors: Tensor

    def __init__(self, space: ActionSpace, config: AutoencoderConfig) -> None:
        super().__init__(space)
        self.config = config
        width = config.width.dim
        self.quantizer = make_quantizer(config.grid, config.levels)
        self.encoder = self.make_encoder(self.quantizer.dim)
        self.from_code = nn.Linear(self.quantizer.dim, width)
        self.mask = nn.Parameter(torch.randn(width) * 0.02)
        self.token_positions = nn.Parameter(torch.randn(config.latent_horizon, width) * 0.02)
        decoder = DECODERS[config.decoder.kind]
        self.decoder = decoder(space.action_horizon, space.model_dim, config.width, config.decoder)
        # D_K, for the objective's weights: a buffer, so that a resumed run weighs as one that was not interrupted.
        self.register_buffer("running_errors", torch.ones(config.latent_horizon))

    @abstractmethod
    def make_encoder(self, latent_dim: int) -> nn.Module:
        """Return a new network from chunks and their valid masks to latents (batch, H_l, latent_dim)."""

    @property
    def vocab_size(self) -> int:
        """Return how many codes the quantizer has."""
        return self.quantizer.vocab_size

    @property
    def max_tokens(self) -> int:
        """Return H_l, the latent tokens of a chunk."""
        return self.config.latent_horizon

    def lattice(self) -> Lattice | None:
        """Return the quantizer's grid of codes, if it has one."""
        return self.quantizer.lattice()

    def trained_prefixes(self) -> Sequence[int]:
        """Return the lengths that nested dropout ever keeps: of OAT×, only the whole sequence is trained."""
        kept = keep_lengths(self.config.objective.keep).probabilities(self.max_tokens)
        return [length for length in self.prefix_lengths() if kept[length - 1] > 0]

    def foldable_decoder(self) -> SinglePassDecoder | None:
        """Return the decoder if it takes a single pass: its memory is linear in the codes, so that it can be folded."""
        return self.decoder if isinstance(self.decoder, SinglePassDecoder) else None

    def encode_normalized(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Tokens:
        """Return ids that depend on nothing but the chunk.

        The last bits of float32 sums change with the batch's size, the threads and the device. Latents so near to a
        rounding boundary that this could matter are computed again in float64, where it cannot.
        """
        # bfloat16 has 8 bits of precision: latents would be rounded to other levels, and ids near 1000 not exist.
        with torch.autocast(actions.device.type, enabled=False):
            positions = self._positions(self.encoder, actions, valid_mask)
            ids = self.quantizer.encode(positions)
            unsure = torch.nonzero(self.quantizer.margin(positions).amin(-1) < _BORDERLINE).squeeze(-1)
            if len(unsure):
                exact = self._positions(in_double(self.encoder), actions[unsure].double(), valid_mask[unsure])
                ids[unsure] = self.quantizer.encode(exact)
        return Tokens(ids, torch.full((len(ids),), ids.shape[1], device=ids.device))

    def _positions(
        self, encoder: nn.Module, actions: Tensor, valid_mask: Tensor
    ) -> Float[Tensor, "batch tokens latent"]:
        """Return the latents' positions, a block at a time: on CPU a block's activations should fit the cache."""
        block = _BLOCK if actions.device.type == "cpu" else max(1, len(actions))
        firsts = range(0, max(1, len(actions)), block)
        latents = [encoder(actions[i : i + block], valid_mask[i : i + block]) for i in firsts]
        return self.quantizer.position(torch.cat(latents))

    @property
    def uses_noise(self) -> bool:
        """Return whether the decoder starts from noise, as a flow does."""
        return self.decoder.uses_noise

    def decode_normalized(
        self, tokens: Tokens, num_actions: int, noise: Float[Tensor, "batch time dim"] | None = None
    ) -> tuple[Float[Tensor, "batch num_actions dim"], Bool[Tensor, " batch"]]:
        """Return the chunk that the decoder makes of each row's tokens; every sequence decodes."""
        # Only lengths were checked: a row's padding may make the ids wider than any sequence, or a prefix narrower.
        missing = self.max_tokens - tokens.ids.shape[1]
        codes = self.quantizer.decode(nn.functional.pad(tokens.ids, (0, max(missing, 0)))[:, : self.max_tokens])
        actions = self.decoder.generate(self.memory(codes, tokens.lengths), num_actions, noise)
        return actions, torch.ones(actions.shape[0], dtype=torch.bool, device=actions.device)

    def memory(
        self, codes: Float[Tensor, "batch tokens latent"], lengths: Int64[Tensor, " batch"]
    ) -> Float[Tensor, "batch tokens width"]:
        """Return what the decoder reads: embedded codes, MASK past each row's length, and positions."""
        kept = torch.arange(self.max_tokens, device=codes.device) < lengths[:, None]
        return torch.where(kept[..., None], self.from_code(codes), self.mask) + self.token_positions

    def forward(
        self,
        actions: Float[Tensor, "batch time dim"],
        valid_mask: Bool[Tensor, "batch time"],
        generator: torch.Generator,
    ) -> Reconstruction:
        """Return one training step's loss on normalised chunks (paper, algorithm 1), over several prefixes of each."""
        objective = self.config.objective
        latents = self.encoder(actions, valid_mask)
        codes = self.quantizer(latents)
        sampled = keep_lengths(objective.keep).sample(len(actions), objective.prefixes, self.max_tokens, generator)
        lengths = sampled.to(actions.device).flatten()
        memory = self.memory(codes.repeat_interleave(objective.prefixes, 0), lengths)
        targets = actions.repeat_interleave(objective.prefixes, 0)
        errors = self.decoder.errors(memory, targets, valid_mask.repeat_interleave(objective.prefixes, 0), generator)
        error = self._weigh(errors, lengths)
        loss = error
        if objective.spread:
            # In proportion to the error: with a fixed weight it outgrew errors that shrink, and cost 8 % of D_1.
            loss = loss + objective.spread * error.detach() * crowding(
                self.quantizer.values(self.quantizer.position(latents))
            )
        if objective.smooth:
            later = self.encoder(*one_step_ahead(actions, valid_mask))
            loss = loss + objective.smooth * error.detach() * roughness(
                self.quantizer.position(latents), self.quantizer.position(later)
            )
        return Reconstruction(loss, errors.detach(), lengths)

    def _weigh(self, errors: Float[Tensor, " rows"], lengths: Int64[Tensor, " rows"]) -> Float[Tensor, ""]:
        """Return Σ w_K · error with w_K = D_K^-balance, scaled so that the weights' mean is 1."""
        balance = self.config.objective.balance
        if balance == 0:
            return errors.mean()
        if self.training:
            self._track(errors.detach(), lengths)
        # An error of zero would weigh infinitely.
        weights = self.running_errors.clamp_min(1e-8).pow(-balance)[lengths - 1]
        return (weights / weights.mean() * errors).mean()

    def _track(self, errors: Float[Tensor, " rows"], lengths: Int64[Tensor, " rows"]) -> None:
        """Follow D_K, averaged over about fifty steps; lengths that this batch does not hold keep theirs."""
        sums = torch.zeros_like(self.running_errors).index_add_(0, lengths - 1, errors.float())
        counts = torch.zeros_like(self.running_errors).index_add_(0, lengths - 1, torch.ones_like(errors).float())
        seen = sums / counts.clamp_min(1)
        self.running_errors.lerp_(torch.where(counts > 0, seen, self.running_errors), 0.02)


def crowding(codes: Float[Tensor, "batch tokens latent"]) -> Float[Tensor, ""]:
    """Return how near the chunks' codes are to each other, at each position: low when they are spread evenly.

    The log of the mean of exp(-2 d²) over all pairs, the uniformity of https://arxiv.org/abs/2005.10242.
    """
    points = codes.transpose(0, 1)
    nearness = torch.exp(-2 * torch.cdist(points, points).square())
    pairs = nearness.sum((1, 2)) - len(codes)  # but for each with itself
    # A batch of one chunk has no pairs; the constant keeps the log finite there, and where all codes are far apart.
    return torch.log(pairs / max(1, len(codes) * (len(codes) - 1)) + 1e-6).mean()
