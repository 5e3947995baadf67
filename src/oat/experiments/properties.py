"""P.1 to P.3 (paper, section III) of a tokenizer, as it does on held-out chunks and not as it says."""

from dataclasses import dataclass

import numpy as np
import torch

from oat.evaluation.statistics import wilson
from oat.experiments.study.held_out import generator
from oat.tables.interval import Interval
from oat.tokenizers import ActionTokenizer
from oat.tokenizers.measures import ChunkBatch, distortions
from oat.tokenizers.tokens import Tokens


@dataclass(frozen=True)
class Properties:
    """What a tokenizer does of what a tokenizer should."""

    tokens: float
    compression: float
    """P.1: numbers of a chunk for every token."""
    decodable: Interval
    """P.2: the share of random sequences that decode."""
    curve: tuple[float, ...]
    """P.3: the mean error after every token; only the last where no prefix decodes."""
    monotone: float
    """P.3: the share of chunks whose error falls with every token."""

    @property
    def prefixes(self) -> bool:
        """Whether any decodes but the whole."""
        return len(self.curve) > 1

    @property
    def falls(self) -> str:
        """How many of the tokens after the first make the mean error smaller."""
        return f"{int((np.diff(self.curve) < 0).sum())} of {len(self.curve) - 1}"

    @property
    def ordered(self) -> float:
        """Their share; 0 where no prefix decodes."""
        return float((np.diff(self.curve) < 0).mean()) if self.prefixes else 0.0


def measure_properties(tokenizer: ActionTokenizer, chunks: ChunkBatch) -> Properties:
    """On held-out chunks, and on random sequences that are as long as theirs."""
    tokens, numbers = chunks.encode(tokenizer), tokenizer.action_horizon * tokenizer.action_dim
    drawn = Tokens(torch.randint(tokenizer.vocab_size, tokens.ids.shape, generator=generator()), tokens.lengths)
    _, valid = tokenizer.try_decode(drawn, state=chunks.state)
    errors, mean = distortions(tokenizer, chunks), float(tokens.lengths.double().mean())
    return Properties(
        tokens=mean,
        compression=numbers / mean,
        decodable=wilson(int(valid.sum()), len(valid)),
        curve=tuple(errors.mean(0).tolist()),
        monotone=float((errors.diff(dim=1) <= 0).all(1).double().mean()),
    )
