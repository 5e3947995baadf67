"""How likely a chunk is under a policy, and how many ordered tokens it needs (paper, section IV-C)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64

from oat.data.transforms import transform_inputs
from oat.evaluation.statistics import clustered_spearman
from oat.experiments.study.held_out import episode_numbers, held_out_batches, held_out_windows
from oat.experiments.study.study import Study
from oat.policies import AutoregressivePolicy
from oat.tables.interval import Interval
from oat.tokenizers.measures import ChunkBatch, decode_prefixes
from oat.tokenizers.tolerance import MaxError
from oat.training.policies import observation_of


@dataclass(frozen=True)
class CodeLengths:
    """Held-out chunks: how likely, and how many tokens each needs."""

    bits: Float64[np.ndarray, " chunks"]
    tokens: Int64[np.ndarray, " chunks"]
    episodes: Int64[np.ndarray, " chunks"]
    limit: float
    """The root of the mean squared error, in action units, that the tokens must stay within."""

    @property
    def correlation(self) -> Interval:
        """Spearman's between the two; chunks of one episode are alike."""
        return clustered_spearman(self.tokens.tolist(), self.bits.tolist(), self.episodes.tolist())


@torch.no_grad()
def measure_code_lengths(study: Study, policy: AutoregressivePolicy) -> CodeLengths:
    """With the limit that half of the chunks keep with half of the tokens."""
    windows, tokenizer = held_out_windows(study, policy), policy.tokenizer
    batches = list(held_out_batches(study, windows))
    parts = [ChunkBatch(*transform_inputs(batch, tokenizer.space.transform)) for batch in batches]
    half, errors, bits = tokenizer.max_tokens // 2, list[float](), list[float]()
    for batch, chunks in zip(batches, parts, strict=True):
        tokens = chunks.encode(tokenizer)
        decoded = decode_prefixes(tokenizer, tokens, chunks)[:, half - 1]
        errors += MaxError(0.0, "rms").measure(decoded, chunks.actions, chunks.valid).tolist()
        nll, _, _ = policy(*policy.read(observation_of(windows, batch)), tokens)
        bits += (nll.sum(1) / math.log(2)).tolist()
    limit = MaxError(float(np.median(errors)), "rms")
    needed = [tokenizer.encode(c.actions, c.valid, c.state, max_error=limit).lengths for c in parts]
    episodes = [number for batch in batches for number in episode_numbers(windows, batch)]
    return CodeLengths(np.array(bits), torch.cat(needed).numpy(), np.array(episodes), limit.size)
