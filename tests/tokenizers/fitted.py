"""Tokenizers for tests: fitted to smooth synthetic chunks, small, untrained unless asked."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from oat.io.training_record import TrainingRecord
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.autoencoder import AutoencoderTokenizer
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.space import ActionSpace
from oat.training.fitting import choose_config

HORIZON, DIM = 16, 3
_READS_ACTIONS = ("from_action.weight", "convolutions.0.weight")


def smooth_chunks(count: int, seed: int = 0, horizon: int = HORIZON, dim: int = DIM) -> Tensor:
    """Reaches: most of a chunk is which way it goes, then how it curves there, then small wiggles."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.linspace(0, 1, horizon)[None, :, None]
    chunks = torch.randn(count, 1, dim, generator=generator) * (3 * time**2 - 2 * time**3)
    for size, frequency in ((0.4, 1.0), (0.1, 3.0)):
        phase = torch.rand(count, 1, dim, generator=generator)
        chunks = chunks + size * torch.sin(2 * torch.pi * (frequency * time + phase))
    return chunks


def fitted_to(chunks: Tensor, kind: str, preset: str = "tiny", **options: Any) -> BaseTokenizer:
    """Return a tokenizer fitted to all chunks, with random weights where it would be trained."""
    steps = 0 if TOKENIZERS.config(kind).trained() else None
    return TOKENIZERS[kind].fit(chunks, preset=preset, steps=steps, validation=0.0, progress=False, **options)


def untrained(kind: str, space: ActionSpace, preset: str = "tiny", **options: Any) -> BaseTokenizer:
    """Return a tokenizer that was never fitted, with these options of `oat fit`."""
    config, _ = choose_config(TOKENIZERS[kind], preset, options)
    return TOKENIZERS[kind](space, config.for_horizon(space.action_horizon))  # type: ignore[call-arg]


@cache
def fitted(kind: str) -> BaseTokenizer:
    """A tokenizer of the kind with statistics, FAST with merges, the learned ones with random weights."""
    tokenizer = fitted_to(smooth_chunks(500), kind)
    tokenizer.training_record = TrainingRecord()  # as if nobody had said how
    if isinstance(tokenizer, AutoencoderTokenizer):
        with torch.no_grad():  # untrained, positions drown the actions: without this all chunks would have equal tokens
            next(p for name, p in tokenizer.encoder.named_parameters() if name in _READS_ACTIONS).mul_(20)
    return tokenizer.eval()
