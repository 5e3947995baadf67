"""Loading a tokenizer whose kind is not known beforehand."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oat.io.checkpoints import find_checkpoint, load_checkpoint
from oat.io.training_record import stored_record
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.base import BaseTokenizer


def load_tokenizer(path: str | Path) -> BaseTokenizer:
    """Return the tokenizer of a checkpoint of any kind, or of the best one of a run."""
    described, _ = load_checkpoint(find_checkpoint(path), TOKENIZERS)
    return TOKENIZERS[described["kind"]].load(path)


def restore_tokenizer(described: Mapping[str, Any]) -> BaseTokenizer:
    """Return the tokenizer that `describe` and its kind tell of; it has no weights yet, and is not fitted."""
    tokenizer = TOKENIZERS.find(described["kind"]).restoring(dict(described))()
    tokenizer.load_mean_chunk(described)
    tokenizer.training_record = stored_record(dict(described))
    return tokenizer
