"""Collect what is known of every method: tokens and their stability, errors, likelihood under the policy, success."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from oat.experiments.study.held_out import read_measures
from oat.experiments.study.methods import COMPARED, UNORDERED, Method
from oat.experiments.study.study import Study
from oat.experiments.success import Row, read_rows
from oat.experiments.token_flips import find_stability
from oat.io.training_record import Measures
from oat.tables.interval import Interval


@dataclass(frozen=True)
class MethodPoint:
    """Hold a method at a number of tokens, as means over its training seeds; NaN where something was not run."""

    row: Row
    variant: bool
    """Whether it is an ablation: figures draw those small, because many lie close together."""
    tokens: float
    mse: float
    bits: float
    """Bits of a held-out chunk's tokens under the policy: −log2 p."""
    open_loop: float
    """Mean squared difference between what the policy would do and what was demonstrated, in model space."""
    undecodable: float
    """Share of the policy's chunks, predicted for held-out observations, that do not decode."""
    shifted: float
    """Share of a held-out chunk's tokens that are others where it begins one step later."""
    noised: float
    """Share of a held-out chunk's tokens that are others where it has a little noise."""

    @property
    def success(self) -> Interval | None:
        """Return the success over all tasks, or None where no episodes were run."""
        return None if self.row.overall is None else self.row.overall.success


def read_points(study: Study, method: Method) -> Iterator[MethodPoint]:
    """Yield a point for each number of tokens that the method acts from."""
    variant = method not in (*COMPARED, UNORDERED)
    chosen = study.ablations((method,)) if variant else study.evaluations((method,))
    fitted = [read_measures(study, method.run("tokenizers", each.seed)) for each in chosen]
    trained = [read_measures(study, method.run("policies", each.seed)) for each in chosen]
    found = [find_stability(study, method, each.seed) for each in chosen]
    stable = [each for each in found if each is not None]
    for row, prefix in zip(read_rows(study, chosen), method.prefixes or (None,), strict=True):
        yield MethodPoint(
            row=row,
            variant=variant,
            tokens=_mean(_tokens(each, prefix) for each in fitted),
            mse=_mean(_error(each, prefix) for each in fitted),
            # Checkpoints hold natural logarithms.
            bits=_mean(_nll(each, prefix) for each in trained) / math.log(2),
            open_loop=_mean(_error(each, prefix) for each in trained),
            undecodable=_mean(math.nan if each.undecodable is None else each.undecodable for each in trained),
            shifted=_mean(each.shifted.share(prefix) for each in stable),
            noised=_mean(each.noised.share(prefix) for each in stable),
        )


def _mean(values: Iterable[float]) -> float:
    """Return the mean of the values that are known; NaN where none is."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _tokens(measures: Measures, prefix: int | None) -> float:
    """Return the tokens per chunk: of the prefix, or on average where the number varies, else of whole chunks."""
    return prefix or measures.tokens or max(measures.mse_of_prefix, default=math.nan)


def _error(measures: Measures, prefix: int | None) -> float:
    """Return the error of the tokenizer's reconstruction, or of the policy's prediction, in model space."""
    error = measures.error(prefix)
    return math.nan if error is None else error


def _nll(measures: Measures, prefix: int | None) -> float:
    """Return the negative log-likelihood of a chunk's tokens, or of the first of them."""
    if prefix is not None and measures.nll_of_token:
        return sum(measures.nll_of_token[place] for place in range(1, prefix + 1))
    return math.nan if measures.nll_of_chunk is None else measures.nll_of_chunk
