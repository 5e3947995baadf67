"""Ordered action tokenization: continuous robot action chunks to a few ordered tokens and back."""

from importlib import import_module
from typing import Any

from oat.data.chunks import Batch, Mixture, WindowConfig, Windows, split_episodes, stream
from oat.data.episodes import Episodes, open_dataset
from oat.errors import OatError

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BinTokenizer",
    "Episodes",
    "FASTTokenizer",
    "Mixture",
    "OATTokenizer",
    "OatError",
    "QueSTTokenizer",
    "WindowConfig",
    "Windows",
    "__version__",
    "open_dataset",
    "split_episodes",
    "stream",
]


def __getattr__(name: str) -> Any:
    """The tokenizers, when first used: they import torch, which takes seconds."""
    if name in __all__:
        return getattr(import_module("oat.tokenizers"), name)
    raise AttributeError(f"module 'oat' has no attribute {name!r}")
