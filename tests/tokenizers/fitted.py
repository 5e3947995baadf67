"""Tokenizers for tests: fitted to smooth synthetic chunks, small, untrained unless asked."""

from functools import cache

import torch
from torch import Tensor

from oat.data.normalize import Normalizer
from oat.data.statistics import RunningStatistics
from oat.tokenizers.autoencoder import AutoencoderTokenizer
from oat.tokenizers.fast import FASTTokenizer
from oat.tokenizers.tokenizer import ActionSpace, ActionTokenizer
from oat.training.tokenizers import make_tokenizer

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


@cache
def fitted(kind: str) -> ActionTokenizer:
    """A tokenizer of the kind with statistics, FAST with merges, the learned ones with random weights."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer(kind, ActionSpace(HORIZON, DIM), "tiny")
    chunks = smooth_chunks(500)
    statistics = RunningStatistics(len(chunks) * HORIZON)
    statistics.update(chunks.reshape(-1, DIM).numpy())
    tokenizer.normalizer = Normalizer.from_statistics(statistics)
    if isinstance(tokenizer, FASTTokenizer):
        tokenizer.fit(tokenizer.to_model_space(chunks))
    if isinstance(tokenizer, AutoencoderTokenizer):
        with torch.no_grad():  # untrained, positions drown the actions: without this all chunks would have equal tokens
            next(p for name, p in tokenizer.encoder.named_parameters() if name in _READS_ACTIONS).mul_(20)
    return tokenizer.eval()
