"""Ordered action tokenization: continuous robot action chunks to a few ordered tokens and back."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oat.data.chunks import Batch, WindowConfig, Windows
from oat.data.episodes import Episodes, open_dataset
from oat.data.mixture import Mixture
from oat.data.splits import split_episodes
from oat.data.stream import stream
from oat.errors import NotFitted, OatError
from oat.interfaces import Observation

if TYPE_CHECKING:  # what `__getattr__` below imports when it is first used, for editors and type checkers
    from oat.export.loading import load_runtime
    from oat.policies import Denoising, Noise, TokenDecoding, load_policy
    from oat.tokenizers import (
        BinTokenizer,
        FASTTokenizer,
        OATTokenizer,
        QueSTTokenizer,
        get_tokenizer,
        load_tokenizer,
    )

__version__ = "0.1.0"

_LATER = {
    "oat.tokenizers": (
        "BinTokenizer",
        "FASTTokenizer",
        "OATTokenizer",
        "QueSTTokenizer",
        "get_tokenizer",
        "load_tokenizer",
    ),
    "oat.policies": ("Denoising", "Noise", "TokenDecoding", "load_policy"),
    "oat.export.loading": ("load_runtime",),
}
"""What imports torch, which takes seconds, and is therefore imported when first used."""

__all__ = [
    "Batch",
    "BinTokenizer",
    "Denoising",
    "Episodes",
    "FASTTokenizer",
    "Mixture",
    "Noise",
    "NotFitted",
    "OATTokenizer",
    "OatError",
    "Observation",
    "QueSTTokenizer",
    "TokenDecoding",
    "WindowConfig",
    "Windows",
    "__version__",
    "get_tokenizer",
    "load_policy",
    "load_runtime",
    "load_tokenizer",
    "open_dataset",
    "split_episodes",
    "stream",
]


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'oat' has no attribute {name!r}")
