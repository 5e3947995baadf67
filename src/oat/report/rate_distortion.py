"""Rate and distortion as curves: OAT over its prefixes, FAST over its scales, Bin over its bins, and who is ahead."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oat.data.chunks import Windows
from oat.errors import InvalidOption
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.measures import (
    ChunkBatch,
    TokenizerMeasures,
    cumulative_entropy,
    distortions,
    draw_chunks,
)

_FITTED_TO = 8192  # chunks: byte-pair encoding learns little from more, and here it is repeated for every scale
_RESOLUTION = 400  # rates at which curves are compared
_SETTINGS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "fast": ("scale", (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)),
    "bin": ("bins", (3, 6, 16, 64, 256)),
}
"""The option that trades rate for distortion in kinds that are fitted in seconds, and values of it."""


@dataclass(frozen=True)
class RatePoint:
    """Hold what a tokenizer writes for a chunk, and what it loses by that."""

    label: str
    """Number of tokens, or the setting that this point is of."""
    bits: float
    """Tokens times the logarithm of the vocabulary."""
    entropy: float
    """Bits that the ids hold, position by position."""
    mse: float


@dataclass(frozen=True)
class RateCurve:
    """Hold the points of one tokenizer, from few bits to many."""

    name: str
    points: tuple[RatePoint, ...]

    def error_at(self, bits: float) -> float:
        """Return the error at a rate, straight between points on logarithmic axes; infinite below the first point."""
        rates = [math.log(point.entropy) for point in self.points]
        # More bits than a point has can always be spent on that point.
        errors = np.minimum.accumulate([math.log(point.mse) for point in self.points])
        if math.log(bits) < rates[0] - 1e-9:
            return math.inf
        return float(np.exp(np.interp(math.log(bits), rates, errors)))


def curve_of(measures: TokenizerMeasures) -> RateCurve:
    """Return the curve of a tokenizer that was measured: a point for each prefix that decodes."""
    lengths = measures.prefixes if len(measures.prefixes) > 1 else (measures.tokens,)
    found = zip(lengths, measures.entropy, measures.mse, strict=True)
    per_token = measures.bits / measures.tokens
    return _curve(measures.name, [RatePoint(f"{k:.3g}", per_token * k, entropy, mse) for k, entropy, mse in found])


def baseline_curves(tokenizer: BaseTokenizer, windows: Windows, chunks: ChunkBatch) -> list[RateCurve]:
    """Return the curves of the kinds that are fitted in seconds, fitted to the same windows in the same model space."""
    taught = draw_chunks(windows, tokenizer, _FITTED_TO)
    return [
        _curve(TOKENIZERS.config(kind).label, _points_of(kind, tokenizer, taught, chunks.to(tokenizer.device)))
        for kind in _SETTINGS
    ]


def _points_of(kind: str, tokenizer: BaseTokenizer, taught: ChunkBatch, chunks: ChunkBatch) -> Iterator[RatePoint]:
    option, values = _SETTINGS[kind]
    for value in values:
        try:
            fitted = fit_like(kind, tokenizer, taught, **{option: value})
        except InvalidOption:
            continue  # so fine a scale has more different coefficients than the vocabulary has room for
        tokens = chunks.encode(fitted)
        bits = float(tokens.lengths.double().mean()) * math.log2(fitted.vocab_size)
        entropy = cumulative_entropy(tokens, fitted.prefix_lengths())[-1]
        yield RatePoint(f"{value:g}", bits, entropy, float(distortions(fitted, chunks).mean()))


def fit_like(kind: str, tokenizer: BaseTokenizer, chunks: ChunkBatch, **options: Any) -> BaseTokenizer:
    """Return a tokenizer that needs no training, fitted to chunks in the model space of another."""
    return TOKENIZERS[kind].fit(
        chunks.actions,
        chunks.valid,
        chunks.state,
        transform=tokenizer.space.transform,
        normalization=tokenizer.normalizer,
        validation=0.0,
        **options,
    )


def _curve(name: str, points: "Sequence[RatePoint] | Iterator[RatePoint]") -> RateCurve:
    # Chunks that never differ hold no bits, and a logarithmic axis has no place for them or for errors of zero.
    known = [point for point in points if point.entropy > 0 and point.mse > 0]
    return RateCurve(name, tuple(sorted(known, key=lambda point: point.entropy)))


def who_leads(curves: Sequence[RateCurve]) -> str:
    """Return one sentence that says who has the smallest error at which rates."""
    drawn = [curve for curve in curves if curve.points]
    rates = [point.entropy for curve in drawn for point in curve.points]
    if not rates:
        return "Nobody is ahead: no tokenizer loses anything."
    spans: list[tuple[str, float]] = []
    for bits in np.geomspace(min(rates), max(rates), _RESOLUTION):
        leader = min(drawn, key=lambda curve: curve.error_at(float(bits))).name
        if not spans or spans[-1][0] != leader:
            spans.append((leader, float(bits)))
    ends = [begin for _, begin in spans[1:]]
    parts = [f"{name} at {begin:.0f} to {end:.0f} bits" for (name, begin), end in zip(spans, ends, strict=False)]
    last, begin = spans[-1]
    parts.append(f"{last} from {begin:.0f} bits on")
    return f"Smallest error, counting bits by entropy: {', '.join(parts)}."
