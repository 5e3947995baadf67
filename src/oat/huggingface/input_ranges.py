"""Notice chunks in other units than a tokenizer was fitted to.

openpi and LeRobot normalise actions before they call a tokenizer, others do not. A chunk in the wrong units is still
encoded, as the nearest that the tokenizer knows: nothing else would tell.
"""

import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from oat.tokenizers.base import BaseTokenizer

_JUDGED_AFTER = 32  # chunks: a few of them may well be unusual
_MOSTLY = 0.5  # share of numbers outside that needs no further evidence
_MANY = 0.1  # of the fitted data itself, at most 2 % lie outside, where quantiles set the range
_NARROW = 0.1  # of the fitted range, in every dimension


class InputRanges:
    """Follow the range of all chunks that a tokenizer was given, and warn once if it cannot be that of its data."""

    def __init__(self, tokenizer: BaseTokenizer) -> None:
        self._tokenizer = tokenizer
        self._warned = False
        self._chunks = 0
        self._outside = 0.0
        self._lowest = torch.full_like(tokenizer.normalizer.low, torch.inf)
        self._highest = -self._lowest

    def look(
        self, actions: Float[Tensor, "batch time dim"], state: Float[Tensor, "batch state"] | None, stacklevel: int
    ) -> None:
        """Take in chunks; warn, as if the caller that many frames above did, when they are in other units."""
        if self._warned or len(actions) == 0:
            return
        normalizer = self._tokenizer.normalizer
        numbers = self._tokenizer.space.transform.forward(actions, state)
        places = (numbers - normalizer.center) * normalizer.gain  # in model space, but not clamped to any limit
        outside = (places < normalizer.low - 1e-4) | (places > normalizer.high + 1e-4)
        moving = normalizer.high > normalizer.low
        self._chunks += len(actions)
        self._outside += float(outside[..., moving].float().mean()) * len(actions)
        self._lowest = self._lowest.minimum(places.amin((0, 1)))
        self._highest = self._highest.maximum(places.amax((0, 1)))
        found = self._complaint(moving)
        if found is not None:
            self._warned = True
            warnings.warn(f"{found} {self._advice()}", stacklevel=stacklevel + 1)

    def _complaint(self, moving: Tensor) -> str | None:
        """Return what is wrong with the chunks so far, if anything is."""
        normalizer = self._tokenizer.normalizer
        share = self._outside / self._chunks
        if share > (_MANY if self._chunks >= _JUDGED_AFTER else _MOSTLY):
            return f"{100 * share:.0f} % of the numbers lie outside the range that this tokenizer was fitted to."
        widths = (self._highest - self._lowest) / (normalizer.high - normalizer.low)
        widest = float(widths[moving].max()) if bool(moving.any()) else 1.0
        if self._chunks >= _JUDGED_AFTER and widest < _NARROW:
            return f"The actions take up {100 * widest:.2g} % of the range that this tokenizer was fitted to."
        return None

    def _advice(self) -> str:
        """Return the two ranges of the first dimension, and what to do about it."""
        normalizer = self._tokenizer.normalizer
        lowest, highest = normalizer.denormalize(torch.stack([self._lowest, self._highest]))[:, 0].tolist()
        low, high = normalizer.denormalize(torch.stack([normalizer.low, normalizer.high]))[:, 0].tolist()
        ranges = f"Dimension 0: fitted to {low:.4g} … {high:.4g}, given {lowest:.4g} … {highest:.4g}."
        if self._tokenizer.space.inputs == "normalized":
            return f"{ranges} It expects normalised actions: normalise them as those it was fitted to."
        return (
            f"{ranges} It expects actions in the units of its data. Where they are normalised before, as in openpi, "
            'save the tokenizer with save_pretrained(directory, inputs="normalized"), or fit one to normalised chunks '
            "with fit(chunks, normalized=True)."
        )
