"""Per-dimension affine maps to model space and back, fitted on training episodes only."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from oat.data.chunks import Windows
from oat.data.episodes import Episodes
from oat.data.statistics import RunningStatistics
from oat.data.transforms import ActionTransform, Identity, transform_inputs
from oat.errors import InvalidOption

NORMALIZATIONS = ("min_max", "quantile", "mean_std")

_BLOCK = 4096
_CONSTANT = 8 * float(np.finfo(np.float32).eps)  # a spread this small against the values is rounding, not motion


class Normalizer(nn.Module):
    """y = clamp((x - center) / spread), x = y · spread + center.

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
        center, spread = (low + high) / 2, (high - low) / 2
        spread = np.where(spread <= _CONSTANT * np.maximum(np.abs(low), np.abs(high)), 0.0, spread)
        gain = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
        for name, value in {"center": center, "spread": spread, "gain": gain, "limit": np.asarray(limit)}.items():
            getattr(normalizer, name).copy_(torch.from_numpy(np.asarray(value, np.float64)))
        return normalizer

    @classmethod
    def from_statistics(cls, statistics: RunningStatistics, kind: str = "min_max") -> "Normalizer":
        """Map the range (min_max) or the 1 %–99 % range, clipped (quantile), to [-1, 1], or standardise (mean_std)."""
        if kind == "min_max":
            normalizer = cls.from_range(statistics.min, statistics.max)
        elif kind == "quantile":
            low, high = statistics.quantiles((0.01, 0.99))
            normalizer = cls.from_range(low, high, limit=1.0)
        elif kind == "mean_std":
            normalizer = cls.from_range(statistics.mean - statistics.std, statistics.mean + statistics.std)
        else:
            raise InvalidOption(f"normalization must be one of {', '.join(NORMALIZATIONS)}, got {kind!r}")
        for buffer, extreme in ((normalizer.low, statistics.min), (normalizer.high, statistics.max)):
            buffer.copy_(normalizer.normalize(torch.from_numpy(extreme).float()))
        return normalizer

    def normalize(self, values: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        return ((values - self.center) * self.gain).clamp(-self.limit, self.limit)

    def denormalize(self, values: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        return values * self.spread + self.center

    def ranges(self) -> list[tuple[float, float, float, float]]:
        """Each dimension's lowest and highest value in fitting, its centre and its spread."""
        lowest, highest = self.denormalize(self.low), self.denormalize(self.high)
        return list(zip(*(each.tolist() for each in (lowest, highest, self.center, self.spread)), strict=True))


def action_statistics(windows: Windows, transform: ActionTransform | None = None) -> RunningStatistics:
    """Statistics of transformed actions over every valid step of every window: what a model will see."""
    transform = transform or Identity()
    horizon, key = windows.config.action_horizon, transform.state_key
    state_dim = None if key is None else int(windows.episodes.observation(key).shape[1])
    transform.output_dim(windows.episodes.action_dim, state_dim)
    statistics = RunningStatistics(len(windows) * horizon)
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
    """Statistics of one observation vector over all frames of the given episodes."""
    column = episodes.observation(key)
    statistics = RunningStatistics(episodes.num_frames)
    frames = episodes.all_frames()
    for first in range(0, len(frames), _BLOCK):
        block = frames[first : first + _BLOCK]
        values = column[block]
        episodes.check_finite(key, block, values)
        statistics.update(values)
    return statistics
