"""Per-dimension affine maps to model space and back, fitted on training episodes only."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from oat.data.chunks import Windows
from oat.data.episodes import Episodes
from oat.data.statistics import RunningStatistics
from oat.data.transforms import ActionTransform, Identity, transform_inputs
from oat.errors import InvalidOption

_BLOCK = 4096
_CONSTANT = 8 * float(np.finfo(np.float32).eps)  # a spread this small against the values is rounding, not motion


class Normalizer(nn.Module):
    """Map each dimension to model space and back: y = clamp((x - center) / spread), x = y · spread + center.

    A dimension that never moves has spread 0: it maps to 0 and back to its constant. The numbers are buffers, so every
    checkpoint that contains the module contains them.
    """

    center: Tensor
    spread: Tensor
    gain: Tensor
    limit: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(dim))
        self.register_buffer("spread", torch.ones(dim))
        self.register_buffer("gain", torch.ones(dim))  # 1 / spread, or 0 for a constant dimension
        self.register_buffer("limit", torch.tensor(torch.inf))  # of |y|
        self.register_buffer("low", torch.full((dim,), -torch.inf))  # the smallest y seen in fitting …
        self.register_buffer("high", torch.full((dim,), torch.inf))  # … and the largest

    @classmethod
    def from_range(cls, low: np.ndarray, high: np.ndarray, limit: float = float("inf")) -> "Normalizer":
        """Map [low, high] to [-1, 1] in each dimension."""
        normalizer = cls(len(low))
        center = (low + high) / 2
        spread = (high - low) / 2
        spread = np.where(spread <= _CONSTANT * np.maximum(np.abs(low), np.abs(high)), 0.0, spread)
        gain = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
        for name, value in {"center": center, "spread": spread, "gain": gain, "limit": np.asarray(limit)}.items():
            getattr(normalizer, name).copy_(torch.from_numpy(np.asarray(value, np.float64)))
        return normalizer

    @classmethod
    def from_statistics(cls, statistics: RunningStatistics, kind: str = "min_max") -> "Normalizer":
        """Build a normalizer of a kind in `NORMALIZATIONS` from the statistics of what will be normalized."""
        if kind not in NORMALIZATIONS:
            raise InvalidOption(f"normalization must be one of {', '.join(NORMALIZATIONS)}, got {kind!r}")
        normalizer = NORMALIZATIONS[kind](statistics)
        for buffer, extreme in ((normalizer.low, statistics.min), (normalizer.high, statistics.max)):
            buffer.copy_(normalizer.normalize(torch.from_numpy(extreme).float()))
        return normalizer

    def unit(self) -> "Normalizer":
        """Return the normaliser of values that are in this one's model space already: the same bounds, and no map."""
        twin = Normalizer(len(self.center))
        for name in ("limit", "low", "high"):
            getattr(twin, name).copy_(getattr(self, name))
        return twin.to(self.center.device)

    def normalize(self, values: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return values in model space, clamped to the limit if there is one."""
        return ((values - self.center) * self.gain).clamp(-self.limit, self.limit)

    def denormalize(self, values: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return values in their own units; what was clamped cannot be restored."""
        return values * self.spread + self.center

    def ranges(self) -> list[tuple[float, float, float, float]]:
        """Return each dimension's lowest and highest value in fitting, its centre and its spread."""
        lowest = self.denormalize(self.low)
        highest = self.denormalize(self.high)
        return list(zip(*(each.tolist() for each in (lowest, highest, self.center, self.spread)), strict=True))


def _normalize_range(statistics: RunningStatistics) -> Normalizer:
    return Normalizer.from_range(statistics.min, statistics.max)


def _normalize_quantiles(statistics: RunningStatistics) -> Normalizer:
    """Map the 1 %–99 % range to [-1, 1] and clip the rest, so that a few outliers do not set the scale."""
    low, high = statistics.quantiles((0.01, 0.99))
    return Normalizer.from_range(low, high, limit=1.0)


def _standardize(statistics: RunningStatistics) -> Normalizer:
    return Normalizer.from_range(statistics.mean - statistics.std, statistics.mean + statistics.std)


def _leave(statistics: RunningStatistics) -> Normalizer:
    """Change nothing but dimensions that never move: the values were normalised before."""
    low = statistics.min
    high = statistics.max
    still = high - low <= _CONSTANT * np.maximum(np.abs(low), np.abs(high))
    return Normalizer.from_range(np.where(still, low, -1.0), np.where(still, high, 1.0))


NORMALIZATIONS: dict[str, Callable[[RunningStatistics], Normalizer]] = {
    "min_max": _normalize_range,
    "quantile": _normalize_quantiles,
    "mean_std": _standardize,
    "none": _leave,
}


def action_statistics(windows: Windows, transform: ActionTransform | None = None) -> RunningStatistics:
    """Return the statistics of transformed actions over every valid step of every window: what a model will see."""
    transform = transform or Identity()
    key = transform.state_key
    state_dim = None if key is None else int(windows.episodes.observation(key).shape[1])
    transform.output_dim(windows.episodes.action_dim, state_dim)  # refuses dimensions that do not exist
    statistics = RunningStatistics(len(windows) * windows.config.action_horizon)
    for first in range(0, len(windows), _BLOCK):
        numbers = np.arange(first, min(first + _BLOCK, len(windows)))
        actions, valid, state = transform_inputs(windows[numbers], transform)
        if key is not None and state is not None:
            episode, step = windows.locate(numbers)
            windows.episodes.check_finite(key, windows.episodes.starts[episode] + step, state.numpy())
        transform.check_values(actions, state)
        statistics.update(transform.forward(actions, state)[valid].numpy())
    return statistics


def observation_statistics(episodes: Episodes, key: str) -> RunningStatistics:
    """Return the statistics of one observation vector over all frames of the given episodes."""
    column = episodes.observation(key)
    statistics = RunningStatistics(episodes.num_frames)
    frames = episodes.all_frames()
    for first in range(0, len(frames), _BLOCK):
        block = frames[first : first + _BLOCK]
        values = column[block]
        episodes.check_finite(key, block, values)
        statistics.update(values)
    return statistics
