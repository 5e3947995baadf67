"""Tokenizers that are OAT but for what a lead does otherwise, for benchmarks/leads.py."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from oat.nn.transformer import EncoderBlock, make_norm
from oat.tokenizers.autoencoder import Reconstruction, crowding
from oat.tokenizers.config import OATConfig
from oat.tokenizers.decoder import SinglePassDecoder, masked_error
from oat.tokenizers.nested_dropout import keep_lengths
from oat.tokenizers.oat import OATTokenizer, RegisterEncoder
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens


@dataclass(frozen=True)
class Lead:
    """Describe what is done otherwise than today's cpu preset does it."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Departures that `oat fit` has options for."""
    distil: float = 0.0
    """Share of the shorter prefixes' target that is what the whole sequence decodes to, instead of the actions."""
    tells_length: bool = False
    """Whether the decoder reads an embedding of the number of tokens."""
    noisy: float = 0.0
    """Share of the training, from its beginning, in which noise as wide as a level stands in for rounding."""
    whole: tuple[float, float] = (1.0, 1.0)
    """Weight of the whole sequence's error at the beginning and at the end; that of shorter prefixes is 1."""
    decorrelate: float = 0.0
    """Weight of the mean squared correlation between numbers of different registers, as a share of the error."""
    principal: bool = False
    """Whether chunks' principal components, the largest first, are added to the latents and to what is decoded."""
    encoder_rate: float = 1.0
    """Learning rate of the encoder, as a multiple of the decoder's."""
    patch: int = 1
    """Neighbouring actions that are one position of the encoder and of the decoder, which makes steps cheaper."""
    sums: bool = False
    """Whether each token adds a chunk of its own, which knows the tokens before it, to those of the tokens before: one
    pass over the tokens then decodes all prefixes, and all of them are trained in every step."""
    residual: bool = False
    """Whether it is RVQ instead, which is fitted by k-means in whatever time that takes."""


class PrincipalEncoder(nn.Module):
    """Add a linear map of the chunk, which begins as its principal components, to what another encoder gives."""

    def __init__(self, inner: nn.Module, numbers: int, latents: int) -> None:
        super().__init__()
        self.inner = inner
        self.components = nn.Linear(numbers, latents)

    def forward(self, actions: Tensor, valid_mask: Tensor) -> Tensor:
        latents = self.inner(actions, valid_mask)
        straight: Tensor = self.components((actions * valid_mask[..., None]).flatten(1))
        return latents + straight.view_as(latents)


class PatchedEncoder(nn.Module):
    """Give another encoder several neighbouring actions as one."""

    def __init__(self, inner: nn.Module, patch: int) -> None:
        super().__init__()
        self.inner = inner
        self.patch = patch

    def forward(self, actions: Tensor, valid_mask: Tensor) -> Tensor:
        chunks, horizon, _ = actions.shape
        patches = horizon // self.patch
        known = (actions * valid_mask[..., None]).reshape(chunks, patches, -1)
        latents: Tensor = self.inner(known, valid_mask.reshape(chunks, patches, self.patch).any(-1))
        return latents


class PatchedDecoder(SinglePassDecoder):
    """Decode several neighbouring actions at each position."""

    def __init__(self, horizon: int, dim: int, config: OATConfig, patch: int) -> None:
        super().__init__(horizon // patch, dim * patch, config.width, config.decoder)
        self.patch = patch

    def generate(self, memory: Tensor, num_actions: int, noise: Tensor | None = None) -> Tensor:
        patches = super().generate(memory, math.ceil(num_actions / self.patch), noise)
        return patches.reshape(len(patches), patches.shape[1] * self.patch, -1)[:, :num_actions]


class SummingDecoder(nn.Module):
    """Decode all prefixes at once: a causal pass over the tokens gives the chunk that each of them adds."""

    def __init__(self, horizon: int, dim: int, config: OATConfig) -> None:
        super().__init__()
        self.shape = (horizon, dim)
        self.blocks = nn.ModuleList(EncoderBlock(config.width) for _ in range(config.decoder.layers))
        self.norm = make_norm(config.width.dim)
        self.positions = nn.Parameter(torch.randn(config.latent_horizon, config.width.dim))
        self.heads = nn.Parameter(torch.zeros(config.latent_horizon, config.width.dim, horizon * dim))

    def forward(self, memory: Tensor) -> Tensor:
        """Return (batch, tokens, time, dim): what the first tokens decode to, for each number of them."""
        tokens = memory.shape[1]
        mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()[None, None]
        x = memory + self.positions
        for block in self.blocks:
            x = block(x, mask)
        added = torch.einsum("bkw,kwo->bko", self.norm(x), self.heads)
        return added.cumsum(1).reshape(*added.shape[:2], *self.shape)


class LedTokenizer(OATTokenizer):
    """Train OAT as a lead says; without any it is the same as OAT."""

    def __init__(self, space: ActionSpace, config: OATConfig, lead: Lead) -> None:
        super().__init__(space, config)
        self.lead = lead
        self.steps = 1
        self.taken = 0
        if lead.tells_length:
            self.lengths = nn.Parameter(torch.zeros(config.latent_horizon, config.width.dim))
        if lead.patch > 1:
            patched = ActionSpace(space.action_horizon // lead.patch, space.model_dim * lead.patch)
            self.encoder = PatchedEncoder(RegisterEncoder(patched, config, self.quantizer.dim), lead.patch)
            self.decoder = PatchedDecoder(space.action_horizon, space.model_dim, config, lead.patch)
        if lead.sums:
            self.sums = SummingDecoder(space.action_horizon, space.model_dim, config)
            self.decoder = None  # type: ignore[assignment]  # nothing of it is trained
        if lead.principal:
            latents = config.latent_horizon * self.quantizer.dim
            numbers = space.action_horizon * space.model_dim
            self.encoder = PrincipalEncoder(self.encoder, numbers, latents)
            self.straight = nn.Linear(latents, numbers)

    @property
    def uses_noise(self) -> bool:
        return False

    @torch.no_grad()
    def begin_with_components(self, chunks: Tensor) -> None:
        """Let the linear paths begin as the whitened principal components and the way back from them."""
        flat = chunks.flatten(1)
        mean = flat.mean(0)
        latents = self.straight.in_features
        _, singular, directions = torch.linalg.svd(flat - mean, full_matrices=False)
        deviations = (singular[:latents] / len(flat) ** 0.5).clamp_min(1e-3)
        assert isinstance(self.encoder, PrincipalEncoder)
        inward = directions[:latents] / deviations[:, None]
        self.encoder.components.weight.copy_(inward)
        self.encoder.components.bias.copy_(-inward @ mean)
        # A value is about 2·sigmoid(1.6 z) - 1, whose slope at 0 is 0.8: the best straight way back divides by it.
        self.straight.weight.copy_((directions[:latents] * deviations[:, None] / 0.8).T)
        self.straight.bias.copy_(mean)

    def reconstruct(self, codes: Tensor, lengths: Tensor, num_actions: int) -> Tensor:
        """Return what the first codes of each row decode to."""
        if self.lead.sums:
            prefixes = self.sums(self.from_code(codes) + self.token_positions)
            chosen: Tensor = prefixes[torch.arange(len(codes)), lengths - 1, :num_actions]
            return chosen
        memory = self.memory(codes, lengths)
        if self.lead.tells_length:
            memory = memory + self.lengths[lengths - 1][:, None]
        decoded = self.decoder.generate(memory, num_actions)
        if self.lead.principal:
            kept = torch.arange(self.max_tokens) < lengths[:, None]
            straight = self.straight((codes * kept[..., None]).flatten(1))
            decoded = decoded + straight.view(len(codes), self.action_horizon, -1)[:, :num_actions]
        return decoded

    def decode_normalized(self, tokens: Tokens, num_actions: int, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        missing = self.max_tokens - tokens.ids.shape[1]
        codes = self.quantizer.decode(nn.functional.pad(tokens.ids, (0, missing)))
        actions = self.reconstruct(codes, tokens.lengths, num_actions)
        return actions, torch.ones(len(actions), dtype=torch.bool)

    def forward(self, actions: Tensor, valid_mask: Tensor, generator: torch.Generator) -> Reconstruction:
        objective = self.config.objective
        progress = self.taken / self.steps
        self.taken += 1
        latents = self.encoder(actions, valid_mask)
        codes = self._codes(latents, progress, generator)
        if self.lead.sums:
            return self._train_all_prefixes(actions, valid_mask, latents, codes)
        prefixes = objective.prefixes
        lengths = keep_lengths(objective.keep).sample(len(actions), prefixes, self.max_tokens, generator).flatten()
        decoded = self.reconstruct(codes.repeat_interleave(prefixes, 0), lengths, self.action_horizon)
        targets = self._targets(actions.repeat_interleave(prefixes, 0), decoded, lengths)
        errors = masked_error(decoded, targets, valid_mask.repeat_interleave(prefixes, 0))
        begin, end = self.lead.whole
        weights = torch.where(lengths == self.max_tokens, begin + (end - begin) * progress, 1.0)
        error = self._weigh(errors * weights / weights.mean(), lengths)
        spread = crowding(self.quantizer.values(self.quantizer.position(latents)))
        loss = error + objective.spread * error.detach() * spread
        if self.lead.decorrelate:
            loss = loss + self.lead.decorrelate * error.detach() * correlation(latents)
        return Reconstruction(loss, errors.detach(), lengths)

    def _train_all_prefixes(self, actions: Tensor, valid: Tensor, latents: Tensor, codes: Tensor) -> Reconstruction:
        prefixes = self.max_tokens
        decoded = self.sums(self.from_code(codes) + self.token_positions).flatten(0, 1)
        lengths = torch.arange(1, prefixes + 1).repeat(len(actions))
        errors = masked_error(decoded, actions.repeat_interleave(prefixes, 0), valid.repeat_interleave(prefixes, 0))
        weights = torch.where(lengths == prefixes, self.lead.whole[0], 1.0)
        error = self._weigh(errors * weights / weights.mean(), lengths)
        spread = crowding(self.quantizer.values(self.quantizer.position(latents)))
        return Reconstruction(error + self.config.objective.spread * error.detach() * spread, errors.detach(), lengths)

    def _codes(self, latents: Tensor, progress: float, generator: torch.Generator) -> Tensor:
        if progress >= self.lead.noisy:
            codes: Tensor = self.quantizer(latents)
            return codes
        position = self.quantizer.position(latents)
        return self.quantizer.values(position + torch.rand(position.shape, generator=generator) - 0.5)

    def _targets(self, actions: Tensor, decoded: Tensor, lengths: Tensor) -> Tensor:
        """Return what each prefix should decode to; of every pair the longer one is what the shorter may learn from."""
        if not self.lead.distil:
            return actions
        prefixes = self.config.objective.prefixes
        pairs = decoded.detach().view(-1, prefixes, *decoded.shape[1:])
        longest = lengths.view(-1, prefixes).argmax(1)
        whole = pairs[torch.arange(len(pairs)), longest].repeat_interleave(prefixes, 0)
        taught = torch.lerp(actions, whole, self.lead.distil)
        return torch.where((lengths == self.max_tokens)[:, None, None], actions, taught)


def correlation(latents: Tensor) -> Tensor:
    """Return the mean squared correlation, over the batch, between numbers of different registers."""
    registers, numbers = latents.shape[1:]
    flat = latents.flatten(1)
    scaled = (flat - flat.mean(0)) / flat.std(0).clamp_min(1e-3)
    squares = (scaled.T @ scaled / len(flat)).square()
    same = torch.kron(torch.eye(registers), torch.ones(numbers, numbers))
    return (squares * (1 - same)).sum() / (1 - same).sum()
