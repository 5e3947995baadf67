"""Stage 2 of the pipeline: chunk ↔ tokens."""

from oat.tokenizers.bin import BinTokenizer
from oat.tokenizers.fast import FASTTokenizer
from oat.tokenizers.oat import OATTokenizer
from oat.tokenizers.quest import QueSTTokenizer
from oat.tokenizers.tokenizer import ActionTokenizer

__all__ = ["TOKENIZERS", "ActionTokenizer", "BinTokenizer", "FASTTokenizer", "OATTokenizer", "QueSTTokenizer"]

TOKENIZERS: dict[str, type[ActionTokenizer]] = {
    tokenizer.kind: tokenizer for tokenizer in (BinTokenizer, FASTTokenizer, QueSTTokenizer, OATTokenizer)
}
