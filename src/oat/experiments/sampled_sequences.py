"""Sample sequences from FAST's policy at several temperatures, and count those that do not decode."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oat.evaluation.statistics import success_rate
from oat.experiments.study.held_out import episode_numbers, held_out_batches, held_out_windows
from oat.experiments.study.study import Study
from oat.policies import AutoregressivePolicy, Noise, TokenDecoding
from oat.tables.interval import Interval
from oat.tokenizers import FASTTokenizer
from oat.training.policies import observation_of

TEMPERATURES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
TOP_KS: tuple[int | None, ...] = (10, None)  # as the paper samples, and among all
"""Numbers of likeliest tokens that are sampled among: as policies usually do, and None for all."""


@dataclass(frozen=True)
class SampledSequences:
    """Hold what became of the sequences that a policy drew at one temperature."""

    top_k: int | None
    temperature: float
    undecodable: Interval
    too_few: float
    too_many: float
    """Shares of all sequences that expand to another number of coefficients than a chunk has."""


def sample_sequences(study: Study, policy: AutoregressivePolicy) -> Iterator[SampledSequences]:
    """Sample chunks for held-out observations, at every temperature and among fewer or all tokens."""
    fast = policy.tokenizer
    assert isinstance(fast, FASTTokenizer)
    windows = held_out_windows(study, policy)
    batches = list(held_out_batches(study, windows))
    episodes = [number for batch in batches for number in episode_numbers(windows, batch)]
    for top_k in TOP_KS:
        for temperature in TEMPERATURES:
            decoding = TokenDecoding(temperature=temperature, top_k=top_k)
            failed: list[bool] = []
            num_coefficients: list[int] = []
            for batch in batches:
                # The same noise at every temperature, so that only the temperature makes the difference.
                noise = Noise.of(batch.windows.tolist(), [0] * len(batch))
                chunk = policy.predict_chunk(observation_of(windows, batch), decoding, noise)
                assert chunk.tokens is not None
                failed += (~chunk.valid).tolist()
                num_coefficients += [len(row) for row in fast.expand(chunk.tokens)]
            too_few = float(np.mean(np.array(num_coefficients) < fast.max_tokens))
            too_many = float(np.mean(np.array(num_coefficients) > fast.max_tokens))
            yield SampledSequences(top_k, temperature, success_rate(failed, episodes), too_few, too_many)
