"""Measure P.1 to P.3 (paper, section III) of a tokenizer on held-out chunks, rather than trust what it declares."""

from dataclasses import dataclass

import numpy as np
import torch

from oat.evaluation.statistics import wilson
from oat.experiments.study.held_out import generator
from oat.tables.interval import Interval
from oat.tokenizers import BaseTokenizer
from oat.tokenizers.measures import ChunkBatch, distortions, monotone_share
from oat.tokenizers.tokens import Tokens


@dataclass(frozen=True)
class Properties:
    """Hold how short, total and ordered the tokens of a tokenizer are."""

    tokens: float
    """P.1: tokens per chunk, on average."""
    compression: float
    """P.1: numbers of a chunk for every token."""
    decodable: Interval
    """P.2: the share of random sequences that decode."""
    curve: tuple[float, ...]
    """P.3: the mean error after every token; only the last where no prefix decodes."""
    monotone: float
    """P.3: the share of chunks whose error falls with every token."""

    @property
    def has_prefixes(self) -> bool:
        """Return whether fewer than all tokens decode, too."""
        return len(self.curve) > 1

    @property
    def helpful_tokens(self) -> str:
        """Say how many of the tokens after the first lower the mean error."""
        return f"{int((np.diff(self.curve) < 0).sum())} of {len(self.curve) - 1}"

    @property
    def helpful_share(self) -> float:
        """Return the share of tokens after the first that lower the mean error; 0 where no prefix decodes."""
        return float((np.diff(self.curve) < 0).mean()) if self.has_prefixes else 0.0


def measure_properties(tokenizer: BaseTokenizer, chunks: ChunkBatch) -> Properties:
    """Measure a tokenizer on held-out chunks, and on random sequences that are as long as theirs."""
    tokens = chunks.encode(tokenizer)
    # As long as real ones: kinds with a fixed number of tokens refuse other lengths.
    random_ids = torch.randint(tokenizer.vocab_size, tokens.ids.shape, generator=generator())
    _, valid = tokenizer.try_decode(Tokens(random_ids, tokens.lengths), state=chunks.state)
    errors = distortions(tokenizer, chunks)
    mean_length = float(tokens.lengths.double().mean())
    return Properties(
        tokens=mean_length,
        compression=tokenizer.action_horizon * tokenizer.action_dim / mean_length,
        decodable=wilson(int(valid.sum()), len(valid)),
        curve=tuple(errors.mean(0).tolist()),
        monotone=monotone_share(errors),
    )
