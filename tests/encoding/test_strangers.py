"""Sets of tokens that somebody damaged or made up: refused by a typed error, before much is read or computed."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from oat.data.transforms import Relative
from oat.encoding.config import DecodeConfig, EncodeConfig
from oat.encoding.part_files import part_file
from oat.encoding.parts import chunks_at_once
from oat.encoding.run import decode_tokens, encode_dataset
from oat.errors import CheckpointError, CorruptDataset, InvalidOption, OatError
from oat.tokenizers.space import ActionSpace
from tests.datasets import make_episodes, write_npz
from tests.tokenizers.fitted import fitted, fitted_to, smooth_chunks

CHUNKS = smooth_chunks(40)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A small set of tokens in several parts."""
    data = write_npz(tmp_path / "set.npz", make_episodes(4, action_dim=CHUNKS.shape[2]))
    fitted("oat").save(tmp_path / "oat")
    encode_dataset(EncodeConfig(data, tmp_path / "oat", tmp_path / "tokens", part_size=20, workers=1, errors=False))
    return tmp_path / "tokens"


def decode(tokens: Path, **options: Any) -> None:
    """Decode beside the set, in this process."""
    decode_tokens(DecodeConfig(tokens, tokens.parent / "actions", workers=1, **options))


def say(tokens: Path, **changes: Any) -> None:
    """Change what the set says of itself."""
    file = tokens / "tokens.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def change(tokens: Path, edit: Callable[[pa.Table], pa.Table]) -> None:
    """Write the first part again, with other columns but the same identity."""
    file = part_file(tokens, 0)
    table = pq.read_table(file)
    pq.write_table(edit(table).replace_schema_metadata(table.schema.metadata), file)


def replaced(name: str, values: Any) -> Callable[[pa.Table], pa.Table]:
    """Return an edit that gives a column these values."""
    return lambda table: table.set_column(table.schema.get_field_index(name), name, values)


@pytest.mark.parametrize(
    "changes",
    [{"chunks": 10**18}, {"chunks": 10**18, "part_size": 1}, {"chunks": -1}, {"part_size": 0}, {"part_size": 10**15}],
    ids=str,
)
def test_absurd_sizes_are_refused_at_once(changes: dict[str, int], tokens: Path) -> None:
    say(tokens, **changes)
    begin = time.process_time()
    with pytest.raises(OatError):
        decode(tokens)
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("changes", [{"vocab_size": 5}, {"action_dim": 900}, {"tokenizer_fingerprint": "x"}], ids=str)
def test_another_tokenizer_than_described_is_refused(changes: dict[str, Any], tokens: Path) -> None:
    say(tokens, **changes)
    with pytest.raises(OatError):
        decode(tokens)


def test_a_part_of_another_tokenizer_s_size_is_told(tokens: Path, tmp_path: Path) -> None:
    fitted_to(CHUNKS, "bin").save(tmp_path / "bin")
    (tokens / "tokenizer").rename(tmp_path / "before")
    (tmp_path / "bin").rename(tokens / "tokenizer")
    with pytest.raises(CorruptDataset, match=r"not the one that tokens\.json describes"):
        decode(tokens)


def lists(rows: list[list[int]]) -> pa.Array:
    """Rows of ids as the column has them."""
    return pa.array(rows, pa.list_(pa.int32()))


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (replaced("tokens", lists([[10**9] * 8] * 20)), "ids must be in"),
        (replaced("tokens", lists([[-1] * 8] * 20)), "ids must be in"),
        (replaced("tokens", lists([[1] * 9] * 2 + [[1] * 7] * 18)), "lengths are not those of its tokens"),
        (replaced("tokens", lists([[1] * 500] * 20)), "declares 10000 numbers in 20 rows"),
        (replaced("tokens", pa.array(["x"] * 20)), "tokens is string"),
        (replaced("length", pa.array([2**31 - 1] * 20, pa.int32())), "lengths are not those of its tokens"),
        (replaced("length", pa.array([None] * 20, pa.int32())), "numbers are missing"),
        (replaced("index", pa.array(np.zeros(20))), "index is double"),
        (lambda table: table.drop_columns(["length"]), "length"),
    ],
)
def test_columns_that_no_encoding_writes_are_refused(
    edit: Callable[[pa.Table], pa.Table], told: str, tokens: Path
) -> None:
    change(tokens, edit)
    with pytest.raises(CorruptDataset, match=told):
        decode(tokens)
    assert not (tokens.parent / "actions" / "data" / "part-00000.parquet").exists()


def test_more_rows_than_described_are_refused(tokens: Path) -> None:
    change(tokens, lambda table: pa.concat_tables([table] * 3))
    with pytest.raises(OatError, match="made of other data"):
        decode(tokens)


def test_a_flipped_byte_of_the_ids_is_noticed(tokens: Path) -> None:
    file = part_file(tokens, 0)
    place = pq.read_metadata(file).row_group(0).column(4).data_page_offset + 40
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptDataset):
        decode(tokens)


def test_an_identity_that_is_no_json_is_told(tokens: Path) -> None:
    file = part_file(tokens, 0)
    pq.write_table(pq.read_table(file).replace_schema_metadata({b"oat": b"{["}), file)
    with pytest.raises(CorruptDataset, match="not a readable part"):
        decode(tokens)


def test_frames_that_the_data_set_does_not_have_are_told(tmp_path: Path) -> None:
    """Numbers below zero would count from its end."""
    episodes = make_episodes(3)
    data = write_npz(tmp_path / "set.npz", episodes)
    chunks = torch.from_numpy(np.stack([episode.actions[:4] for episode in episodes]))
    states = torch.from_numpy(np.stack([episode.states[0] for episode in episodes]))
    tokenizer = fitted_to(chunks, "bin", states=states, transform=Relative(dims=(0,), state_dims=(1,)))
    tokenizer.save(tmp_path / "relative")
    encode_dataset(EncodeConfig(data, tmp_path / "relative", tmp_path / "tokens", workers=1, errors=False))
    rows = pq.read_metadata(part_file(tmp_path / "tokens", 0)).num_rows
    change(tmp_path / "tokens", replaced("index", pa.array([-1] * rows)))
    with pytest.raises(CorruptDataset, match="names frames that the data set"):
        decode(tmp_path / "tokens", data=data)


def test_its_tokenizer_is_checked_as_any_other(tokens: Path) -> None:
    weights = tokens / "tokenizer" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(CheckpointError):
        decode(tokens)


def test_fewer_chunks_are_computed_together_where_they_are_large() -> None:
    assert chunks_at_once(ActionSpace(32, 7)) == 4096
    assert chunks_at_once(ActionSpace(64, 7)) == 2048
    assert chunks_at_once(ActionSpace(4096, 4096)) == 1


def test_files_larger_than_can_be_read_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"part_size must be in 1…1,048,576, got 1048577"):
        EncodeConfig(tmp_path, tmp_path, tmp_path, part_size=2**20 + 1)
