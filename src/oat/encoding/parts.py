"""Encode and decode one part of a data set: what every worker does, wherever it runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Int64
from torch import Tensor

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import Episodes, open_dataset
from oat.data.transforms import transform_inputs
from oat.encoding.part_files import Begins, part_file, write_part
from oat.encoding.schemas import (
    action_schema,
    fixed_lists,
    key_columns,
    nested_lists,
    token_columns,
    token_schema,
)
from oat.encoding.token_set import TokenSet
from oat.errors import CorruptDataset, InvalidOption, InvalidTokens
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.measures import ChunkBatch, decode_prefixes, model_errors
from oat.tokenizers.ready_made import names_for
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens

_CHUNKS = 4096  # at most computed at a time, which bounds the memory that it takes
_STEPS = _CHUNKS * 32  # as are their steps, each of 32 numbers


@runtime_checkable
class PartWriter(Protocol):
    """Write parts by number."""

    def write(self, part: int) -> int:
        """Write one part, whole or not at all, and return how many chunks it holds."""
        ...


@runtime_checkable
class PartJob(Protocol):
    """Describe what workers do in a few words that can be sent to them."""

    def __hash__(self) -> int: ...

    def open(self) -> PartWriter:
        """Return what writes the parts, with all that it needs in memory."""
        ...


def chunk_windows(episodes: Episodes, tokenizer: BaseTokenizer) -> Windows:
    """Return the windows of a data set that a tokenizer encodes, with the state where its transform refers to it."""
    if episodes.action_dim != tokenizer.action_dim:
        fitting = names_for(episodes.action_dim)
        advice = f"; of those in this package, {', '.join(fitting)} would fit" if fitting else ""
        raise InvalidOption(
            f"{episodes.source} has {episodes.action_dim}-D actions, "
            f"the tokenizer is for {tokenizer.action_dim}-D ones{advice}"
        )
    key = tokenizer.space.transform.state_key
    return Windows(episodes, WindowConfig(tokenizer.action_horizon, 1, () if key is None else (key,)))


def chunk_keys(
    windows: Windows, whole: Episodes, numbers: Int64[np.ndarray, " n"]
) -> dict[str, Int64[np.ndarray, " n"]]:
    """Return where chunks begin, by the numbers of the whole data set that they may be a selection of."""
    selected, step = windows.locate(numbers)
    frame = windows.episodes.starts[selected] + step
    episode = whole.episode_of(frame)
    tasks = windows.episodes.task_ids[selected]
    return {"episode_index": episode, "frame_index": frame - whole.starts[episode], "index": frame, "task_index": tasks}


def chunks_at_once(space: ActionSpace) -> int:
    """Return how many chunks are computed together: fewer where they are long or have many numbers."""
    longest = max(space.action_horizon, -(-space.action_horizon * space.action_dim // 32))
    return max(1, min(_CHUNKS, _STEPS // longest))


def blocks(rows: range, at_once: int) -> Iterator[Int64[np.ndarray, " n"]]:
    """Yield the numbers of a part's chunks, as many at a time as are computed together."""
    for first in range(rows.start, rows.stop, at_once):
        yield np.arange(first, min(first + at_once, rows.stop))


@dataclass(frozen=True)
class EncodeJob:
    """Say which data set is encoded into which set of tokens."""

    data: Path
    out: Path
    subset: str | None
    episodes: str | None

    def open(self) -> "PartEncoder":
        """Return the encoder of parts."""
        token_set = TokenSet.open(self.out)
        chosen = open_dataset(self.data, self.subset, self.episodes)
        everything = open_dataset(self.data) if self.subset or self.episodes else chosen
        tokenizer = token_set.load_tokenizer()
        return PartEncoder(token_set, chunk_windows(chosen, tokenizer), everything, tokenizer)


@dataclass(frozen=True)
class PartEncoder:
    """Encode parts of a data set."""

    token_set: TokenSet
    windows: Windows
    whole: Episodes
    tokenizer: BaseTokenizer

    def write(self, part: int) -> int:
        """Encode one part into its file."""
        info = self.token_set.info
        schema = token_schema(len(info.prefixes), info.identity)
        rows = info.rows(part)
        numbers = blocks(rows, chunks_at_once(self.tokenizer.space))
        write_part(part_file(self.token_set.root, part), schema, map(self._columns, numbers))
        return len(rows)

    def _columns(self, numbers: Int64[np.ndarray, " n"]) -> dict[str, pa.Array]:
        chunks = ChunkBatch(*transform_inputs(self.windows[numbers], self.tokenizer.space.transform))
        tokens = chunks.encode(self.tokenizer)
        columns = key_columns(chunk_keys(self.windows, self.whole, numbers)) | token_columns(tokens)
        if self.token_set.info.prefixes:
            errors = model_errors(self.tokenizer, decode_prefixes(self.tokenizer, tokens, chunks), chunks)
            columns["error"] = fixed_lists(errors.cpu().numpy())
        return columns


@dataclass(frozen=True)
class DecodeJob:
    """Say which tokens are decoded, how far, and where to."""

    tokens: Path
    out: Path
    num_tokens: int | None
    num_actions: int | None
    data: Path | None

    def open(self) -> "PartDecoder":
        """Return the decoder of parts, or raise `InvalidOption` for what this tokenizer cannot do."""
        token_set = TokenSet.open(self.tokens)
        tokenizer = token_set.load_tokenizer()
        most = tokenizer.max_tokens
        if self.num_tokens is not None and not (tokenizer.prefix_decodable and 1 <= self.num_tokens <= most):
            allowed = f"must be in 1…{most}" if tokenizer.prefix_decodable else f"means nothing to {tokenizer.kind}"
            raise InvalidOption(f"--num-tokens {allowed}, got {self.num_tokens}")
        if self.num_actions is not None and not 1 <= self.num_actions <= tokenizer.action_horizon:
            raise InvalidOption(f"--num-actions must be in 1…{tokenizer.action_horizon}, got {self.num_actions}")
        return PartDecoder(self, token_set, tokenizer, self._states(tokenizer))

    def _states(self, tokenizer: BaseTokenizer) -> Any:
        """Return the frames of the states that actions are relative to, if they are."""
        key = tokenizer.space.transform.state_key
        if key is None:
            return None
        if self.data is None:
            raise InvalidOption(f"these actions are relative to {key}: name the encoded data set with --data")
        return open_dataset(self.data).observation(key)

    def identity(self, token_set: TokenSet) -> dict[str, Any]:
        """Return what every file of actions says of itself."""
        return {**token_set.info.identity, "num_tokens": self.num_tokens, "num_actions": self.num_actions}


@dataclass(frozen=True)
class PartDecoder:
    """Decode parts of a set of tokens."""

    job: DecodeJob
    token_set: TokenSet
    tokenizer: BaseTokenizer
    states: Any

    def write(self, part: int) -> int:
        """Decode one part into its file."""
        space = self.tokenizer.space
        source = part_file(self.token_set.root, part)
        schema = action_schema(self._time, space.action_dim, self.job.identity(self.token_set))
        read = self.token_set.read(part, self.tokenizer.max_tokens, chunks_at_once(space))
        write_part(part_file(self.job.out, part), schema, (self._columns(*block, source) for block in read))
        return len(self.token_set.info.rows(part))

    @property
    def _time(self) -> int:
        return self.job.num_actions or self.tokenizer.action_horizon

    def _columns(self, begins: Begins, tokens: Tokens, source: Path) -> dict[str, pa.Array]:
        shown = tokens if self.job.num_tokens is None else tokens[:, : self.job.num_tokens]
        try:
            actions = self.tokenizer.decode(shown, self._time, self._state(begins["index"]))
        except (InvalidTokens, IndexError) as error:
            raise CorruptDataset(f"{source}: {error}") from error
        return key_columns(begins) | {"action": nested_lists(actions.cpu().numpy())}

    def _state(self, frames: Int64[np.ndarray, " n"]) -> Tensor | None:
        if self.states is None:
            return None
        if not ((frames >= 0) & (frames < self.states.shape[0])).all():
            raise IndexError(f"it names frames that the data set, of {self.states.shape[0]}, has not")
        return torch.from_numpy(self.states[frames])
