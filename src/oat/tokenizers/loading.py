"""Loading a tokenizer whose kind is not known beforehand."""

from pathlib import Path

from oat.io.checkpoints import find_checkpoint, load_checkpoint
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.base import BaseTokenizer


def load_tokenizer(path: str | Path) -> BaseTokenizer:
    """Return the tokenizer of a checkpoint of any kind, or of the best one of a run."""
    described, _ = load_checkpoint(find_checkpoint(path), TOKENIZERS)
    return TOKENIZERS[described["kind"]].load(path)
