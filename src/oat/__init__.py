"""Ordered action tokenization: continuous robot action chunks to a few ordered tokens and back."""

from oat.data.chunks import Batch, Mixture, WindowConfig, Windows, split_episodes, stream
from oat.data.episodes import Episodes, open_dataset
from oat.errors import OatError

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Episodes",
    "Mixture",
    "OatError",
    "WindowConfig",
    "Windows",
    "__version__",
    "open_dataset",
    "split_episodes",
    "stream",
]
