"""The tokens of all windows, computed once and kept on disk: a tokenizer does not change while a policy learns."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int32, Int64

from oat.data.chunks import Batch, WindowConfig, Windows
from oat.data.columns import cache_directory, map_cached
from oat.data.transforms import transform_inputs
from oat.io.atomic import staged_file
from oat.io.config_json import config_to_json
from oat.io.notes import note
from oat.io.progress import progress_bar
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.tokens import Tokens

_BLOCK = 4096  # windows encoded at a time, which bounds the memory that it takes


@dataclass(frozen=True)
class TokenCache:
    """Hold window w's tokens in row w and, in its last column, how many they are."""

    table: Int32[np.ndarray, "windows width_and_length"]

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, windows: Int64[np.ndarray, " n"]) -> Tokens:
        rows = torch.from_numpy(self.table[windows].astype(np.int64))
        return Tokens(rows[:, :-1], rows[:, -1])

    @property
    def longest(self) -> int:
        """Return the most tokens that any window has."""
        return int(self.table[:, -1].max())


def cache_tokens(tokenizer: BaseTokenizer, windows: Windows, search: int = 0) -> TokenCache:
    """Read the tokens of all windows, or encode them first, by a search if one is asked for."""
    searched = f"-search-{search}" if search else ""
    file = cache_directory().with_name("tokens") / f"{_fingerprint(tokenizer, windows)}{searched}.npy"
    found = _read(file, tokenizer, windows)
    if found is None:
        # Not durable: what a power failure loses is only computed again.
        with staged_file(file, durable=False) as staging, staging.open("wb") as out:
            np.save(out, _encode_all(tokenizer, windows, search))
        found = _read(file, tokenizer, windows)
        assert found is not None, "what was just written is there"
    return found


def _read(file: Path, tokenizer: BaseTokenizer, windows: Windows) -> TokenCache | None:
    """Return the tokens that were kept; None if there are none, or not those of so many windows."""
    # Mapped rather than read: processes that train together share one copy in memory.
    table = map_cached(file, np.dtype(np.int32), (len(windows), None))
    if table is None:
        return None
    ids = table[:, :-1]
    lengths = table[:, -1]
    if ((ids < 0) | (ids >= tokenizer.vocab_size)).any() or ((lengths < 0) | (lengths > ids.shape[1])).any():
        note(f"{file} is damaged (it holds what are no tokens); it is made again")
        return None
    return TokenCache(table)


def encode_batch(tokenizer: BaseTokenizer, batch: Batch, search: int = 0) -> Tokens:
    """Return the tokens of some windows; padded steps are left out of what they describe."""
    return tokenizer.encode(*transform_inputs(batch, tokenizer.space.transform), search=search)


def _encode_all(
    tokenizer: BaseTokenizer, windows: Windows, search: int
) -> Int32[np.ndarray, "windows width_and_length"]:
    """Return the table of all windows' tokens and their lengths, as wide as the longest sequence needs."""
    key = tokenizer.space.transform.state_key
    config = WindowConfig(windows.config.action_horizon, 1, () if key is None else (key,))
    needed = Windows(windows.episodes, config)  # no images: they would be decoded for nothing
    blocks = []
    with progress_bar("tokenizing", len(windows)) as bar:
        for first in range(0, len(windows), _BLOCK):
            numbers = np.arange(first, min(first + _BLOCK, len(windows)))
            blocks.append(encode_batch(tokenizer, needed[numbers], search))
            bar.advance(len(numbers))
    width = max(int(block.lengths.max()) for block in blocks)
    table = np.zeros((len(windows), width + 1), np.int32)
    row = 0
    for block in blocks:
        ids = block.ids[:, :width].cpu().numpy()
        table[row : row + len(ids), : ids.shape[1]] = ids
        table[row : row + len(ids), -1] = block.lengths.cpu().numpy()
        row += len(ids)
    return table


def tokenizer_fingerprint(tokenizer: BaseTokenizer) -> str:
    """Return a hash that tells tokenizers apart that could give other tokens."""
    return hashlib.blake2b(b"".join(_contents(tokenizer)), digest_size=8).hexdigest()


def _fingerprint(tokenizer: BaseTokenizer, windows: Windows) -> str:
    """Return a hash of all that changes a token: the tokenizer's weights, the windows' actions, states and ends."""
    digest = hashlib.blake2b(b"".join(_contents(tokenizer)), digest_size=16)
    episodes = windows.episodes
    key = tokenizer.space.transform.state_key
    parts = (episodes.actions[start:end] for start, end in zip(episodes.starts, episodes.ends, strict=True))
    for array in (episodes.lengths, *parts):
        digest.update(np.ascontiguousarray(array).data)
    if key is not None:
        digest.update(np.ascontiguousarray(episodes.observation(key)[episodes.all_frames()]).data)
    return digest.hexdigest()


def _contents(tokenizer: BaseTokenizer) -> Iterator[bytes]:
    """Yield the bytes of all that a tokenizer's tokens depend on: kind, configuration, merges and weights."""
    described = [tokenizer.kind, config_to_json(tokenizer.space), config_to_json(tokenizer.config)]
    yield json.dumps([*described, tokenizer.text_state()]).encode()
    # The record of its training is left out: it says when and from what, and changes no token.
    for name, tensor in sorted(tokenizer.state_dict().items()):
        yield name.encode() + tensor.cpu().numpy().tobytes()
