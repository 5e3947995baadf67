"""Measure how likely a chunk is under a policy, and how many ordered tokens it needs (paper, section IV-C)."""

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
    """Hold how likely each held-out chunk is, and how many tokens it needs."""

    bits: Float64[np.ndarray, " chunks"]
    """−log2 p of all of the chunk's tokens under the policy."""
    tokens: Int64[np.ndarray, " chunks"]
    """The fewest tokens whose error stays within the limit."""
    episodes: Int64[np.ndarray, " chunks"]
    limit: float
    """The root of the mean squared error, in action units, that the tokens must stay within."""

    @property
    def correlation(self) -> Interval:
        """Return Spearman's correlation of tokens and bits, with an interval from resampled episodes."""
        # Chunks of one episode are alike: counted one by one, they would make the interval too narrow.
        return clustered_spearman(self.tokens.tolist(), self.bits.tolist(), self.episodes.tolist())


@torch.no_grad()
def measure_code_lengths(study: Study, policy: AutoregressivePolicy) -> CodeLengths:
    """Measure held-out chunks, with the error limit that half of them keep with half of the tokens."""
    windows = held_out_windows(study, policy)
    tokenizer = policy.tokenizer
    half = tokenizer.max_tokens // 2
    batches = list(held_out_batches(study, windows))
    parts = [ChunkBatch(*transform_inputs(batch, tokenizer.space.transform)) for batch in batches]
    errors: list[float] = []
    bits: list[float] = []
    for batch, chunks in zip(batches, parts, strict=True):
        tokens = chunks.encode(tokenizer)
        decoded = decode_prefixes(tokenizer, tokens, chunks)[:, half - 1]
        errors += MaxError(0.0, "rms").measure(decoded, chunks.actions, chunks.valid).tolist()
        nll = policy(*policy.read(observation_of(windows, batch)), tokens).nll
        bits += (nll.sum(1) / math.log(2)).tolist()
    # Any fixed limit would be too strict for one data set and too loose for another; the median splits each.
    limit = MaxError(float(np.median(errors)), "rms")
    needed = [tokenizer.encode(c.actions, c.valid, c.state, max_error=limit).lengths for c in parts]
    episodes = [number for batch in batches for number in episode_numbers(windows, batch)]
    return CodeLengths(np.array(bits), torch.cat(needed).numpy(), np.array(episodes), limit.size)
