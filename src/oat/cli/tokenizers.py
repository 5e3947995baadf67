"""The verbs of tokenizers: fit, tokenizers, encode, decode."""

import tyro

from oat.encoding.config import DecodeConfig, EncodeConfig
from oat.training.config import FitConfig


def fit(config: FitConfig) -> None:
    """Fit a tokenizer to demonstrations: OAT, RVQ, QueST, FAST or Bin.

    OAT and QueST are trained; OUT/best is then the checkpoint to use, and the same command with --resume continues
    an interrupted run. RVQ, FAST and Bin are fitted at once, and OUT is the checkpoint.
    """
    from oat.training.tokenizers import fit_tokenizer

    fit_tokenizer(config)


def tokenizers(json: bool = False) -> None:
    """List the tokenizers that come with the package: their actions, errors, data and licences.

    oat.get_tokenizer(NAME) gives one in Python, and oat encode takes NAME in place of a checkpoint.

    Args:
        json: Print JSON instead of a table.
    """
    from oat.report.ready_made_table import show_ready_made

    show_ready_made(json)


def encode(config: tyro.conf.OmitArgPrefixes[EncodeConfig]) -> None:
    """Encode every chunk of a data set as tokens, in Parquet files beside its own episode and frame numbers.

    Language models are trained on what it writes: ids, lengths, the error of every prefix; Hugging Face datasets reads
    it. After an interruption the same command continues where it was.
    """
    from oat.encoding.run import encode_dataset

    encode_dataset(config)


def decode(config: tyro.conf.OmitArgPrefixes[DecodeConfig]) -> None:
    """Decode what oat encode wrote, or prefixes of it, to actions in Parquet files.

    The tokens bring their tokenizer along. After an interruption the same command continues where it was.
    """
    from oat.encoding.run import decode_tokens

    decode_tokens(config)
