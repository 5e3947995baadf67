"""Run `oat encode` and `oat decode`: plan the parts, write those that are missing, show how far it is."""

import time
from collections.abc import Iterator

from rich.console import Console

from oat.data.episodes import open_dataset
from oat.encoding.backends import write_parts
from oat.encoding.config import DecodeConfig, EncodeConfig
from oat.encoding.parts import DecodeJob, EncodeJob, chunk_windows
from oat.encoding.token_set import TokenSet, TokenSetInfo, missing_parts
from oat.io.locks import exclusive
from oat.io.progress import progress_bar
from oat.tokenizers.ready_made import find_tokenizer
from oat.training.token_cache import tokenizer_fingerprint


def begin_encoding(config: EncodeConfig) -> tuple[TokenSetInfo, EncodeJob]:
    """Begin a set of tokens, or find the one that an earlier run of the same began."""
    out = config.out.expanduser().resolve()
    data = config.data.expanduser().resolve()
    tokenizer = find_tokenizer(config.tokenizer)
    episodes = open_dataset(data, config.subset, config.episodes)
    windows = chunk_windows(episodes, tokenizer)
    info = TokenSetInfo(
        data=str(data),
        data_fingerprint=episodes.fingerprint(),
        tokenizer=tokenizer.kind,
        tokenizer_fingerprint=tokenizer_fingerprint(tokenizer),
        vocab_size=tokenizer.vocab_size,
        action_horizon=tokenizer.action_horizon,
        action_dim=tokenizer.action_dim,
        chunks=len(windows),
        part_size=config.part_size,
        prefixes=tuple(tokenizer.prefix_lengths()) if config.errors else (),
        tasks=episodes.tasks,
    )
    TokenSet.begin(out, info, tokenizer)
    return info, EncodeJob(data, out, config.subset, config.episodes)


def encode_dataset(config: EncodeConfig) -> None:
    """Encode every chunk of a data set; what an earlier run of the same command encoded is kept."""
    out = config.out.expanduser().resolve()
    with exclusive(out, f"encoding into {out}"):
        info, job = begin_encoding(config)
        missing = missing_parts(out, info, info.identity)
        written = write_parts(job, missing, config.workers, config.backend, config.address)
        _show("encoding", info, missing, written)
    Console().print(f"{info.chunks:,} chunks as tokens of {info.tokenizer} {info.tokenizer_fingerprint}: {out}")


def decode_tokens(config: DecodeConfig) -> None:
    """Decode a set of tokens; what an earlier run of the same command decoded is kept."""
    out = config.out.expanduser().resolve()
    token_set = TokenSet.open(config.tokens.expanduser().resolve())
    token_set.check_complete()
    data = None if config.data is None else config.data.expanduser().resolve()
    job = DecodeJob(token_set.root, out, config.num_tokens, config.num_actions, data)
    job.open()  # what cannot be done is told here, before processes are started
    with exclusive(out, f"decoding into {out}"):
        missing = missing_parts(out, token_set.info, job.identity(token_set))
        written = write_parts(job, missing, config.workers, config.backend, config.address)
        _show("decoding", token_set.info, missing, written)
    Console().print(f"{token_set.info.chunks:,} chunks of {token_set.info.action_dim}-D actions: {out}")


def _show(what: str, info: TokenSetInfo, missing: list[int], written: Iterator[int]) -> None:
    """Advance a bar as parts are written."""
    left = sum(len(info.rows(part)) for part in missing)
    begin = time.perf_counter()
    done = 0
    with progress_bar(what, info.chunks, info.chunks - left) as bar:
        for chunks in written:
            done += chunks
            bar.advance(chunks, f"{done / (time.perf_counter() - begin):,.0f} chunks/s")
