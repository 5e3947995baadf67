"""Stage 2 of the pipeline: chunk ↔ tokens.

A new tokenizer is one file with its configuration and its class, and one line in `TOKENIZERS`. Importing this package
imports no torch; the classes are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oat.io.kinds import Kinds, Later
from oat.tokenizers.config import BinConfig, FASTConfig, OATConfig, QueSTConfig, RVQConfig

if TYPE_CHECKING:
    from oat.tokenizers.base import BaseTokenizer
    from oat.tokenizers.bin import BinTokenizer
    from oat.tokenizers.fast import FASTTokenizer
    from oat.tokenizers.loading import load_tokenizer
    from oat.tokenizers.oat import OATTokenizer
    from oat.tokenizers.quest import QueSTTokenizer
    from oat.tokenizers.ready_made import get_tokenizer
    from oat.tokenizers.rvq import RVQTokenizer
    from oat.tokenizers.space import ActionSpace

__all__ = [
    "TOKENIZERS",
    "ActionSpace",
    "BaseTokenizer",
    "BinTokenizer",
    "FASTTokenizer",
    "OATTokenizer",
    "QueSTTokenizer",
    "RVQTokenizer",
    "get_tokenizer",
    "load_tokenizer",
]

TOKENIZERS: "Kinds[BaseTokenizer]" = Kinds(
    "tokenizer",
    {
        "bin": Later("oat.tokenizers.bin", "BinTokenizer", BinConfig),
        "fast": Later("oat.tokenizers.fast", "FASTTokenizer", FASTConfig),
        "quest": Later("oat.tokenizers.quest", "QueSTTokenizer", QueSTConfig),
        "oat": Later("oat.tokenizers.oat", "OATTokenizer", OATConfig),
        "rvq": Later("oat.tokenizers.rvq", "RVQTokenizer", RVQConfig),
    },
)

_LATER = {
    "ActionSpace": "oat.tokenizers.space",
    "BaseTokenizer": "oat.tokenizers.base",
    "BinTokenizer": "oat.tokenizers.bin",
    "FASTTokenizer": "oat.tokenizers.fast",
    "OATTokenizer": "oat.tokenizers.oat",
    "QueSTTokenizer": "oat.tokenizers.quest",
    "RVQTokenizer": "oat.tokenizers.rvq",
    "get_tokenizer": "oat.tokenizers.ready_made",
    "load_tokenizer": "oat.tokenizers.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
