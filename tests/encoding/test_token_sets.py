"""Data sets as tokens on disk: from any format, by the set's own numbers, continued after a kill, and back again."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from oat.cli import main
from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import open_dataset
from oat.data.transforms import Relative
from oat.encoding.config import DecodeConfig, EncodeConfig
from oat.encoding.part_files import part_file
from oat.encoding.run import decode_tokens, encode_dataset
from oat.encoding.token_set import TokenSet
from oat.errors import CorruptDataset, DatasetExists, InvalidOption
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.measures import distortions, draw_chunks
from tests.datasets import WRITERS, make_episodes, write_npz
from tests.tokenizers.fitted import fitted_to

HORIZON = 4
EPISODES = make_episodes(6, tasks=2)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_npz(tmp_path / "set.npz", EPISODES)


def tokenizer_for(data: Path, kind: str = "oat", **options: Any) -> BaseTokenizer:
    """Fitted to the data set's chunks, untrained."""
    windows = Windows(open_dataset(data), WindowConfig(HORIZON, 1, ("observation.state",)))
    batch = windows[np.arange(len(windows))]
    states = torch.from_numpy(batch.observations["observation.state"][:, -1]) if options else None
    return fitted_to(torch.from_numpy(batch.actions), kind, states=states, **options)


def encode(data: Path, tmp_path: Path, kind: str = "oat", **options: Any) -> TokenSet:
    """Run `oat encode` in this process, seven chunks to a file."""
    checkpoint = tmp_path / f"tokenizer-{kind}"
    if not checkpoint.exists():
        tokenizer_for(data, kind).save(checkpoint)
    chosen: dict[str, Any] = {"out": tmp_path / "tokens", "part_size": 7, "workers": 1, **options}
    encode_dataset(EncodeConfig(data, checkpoint, **chosen))
    return TokenSet.open(Path(str(chosen["out"])))


@pytest.mark.parametrize("writer", WRITERS)
def test_every_format_is_encoded_by_its_own_numbers(writer: str, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    data = WRITERS[writer](tmp_path / "set", EPISODES)
    token_set = encode(data, tmp_path, "bin", errors=False)
    table = pq.read_table(token_set.root / "data")
    episodes = open_dataset(data)
    assert table["index"].to_pylist() == list(range(episodes.num_frames))
    assert table["episode_index"].to_pylist() == [e for e in range(6) for _ in range(episodes.lengths[e])]
    assert table["frame_index"].to_pylist() == [step for length in episodes.lengths for step in range(length)]
    assert [token_set.info.tasks[i] for i in table["task_index"].to_pylist()] == [
        episodes.task(e) for e in table["episode_index"].to_pylist()
    ]


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_tokens_and_errors_are_the_tokenizer_s(kind: str, data: Path, tmp_path: Path) -> None:
    token_set = encode(data, tmp_path, kind)
    tokenizer = token_set.load_tokenizer()
    windows = Windows(open_dataset(data), WindowConfig(HORIZON, 1))
    chunks = draw_chunks(windows, tokenizer)
    table = pq.read_table(token_set.root / "data")
    expected = chunks.encode(tokenizer)
    assert table["tokens"].to_pylist() == expected.tolist()
    assert table["length"].to_pylist() == expected.lengths.tolist()
    errors = torch.tensor(table["error"].to_pylist())
    torch.testing.assert_close(errors, distortions(tokenizer, chunks), atol=1e-5, rtol=1e-4)
    assert token_set.info.prefixes == tuple(tokenizer.prefix_lengths())
    assert token_set.info.num_parts == len(list((token_set.root / "data").iterdir())) > 2
    read = [token_set.read(part, tokenizer.max_tokens, 3) for part in range(token_set.info.num_parts)]
    assert [row for part in read for _, tokens in part for row in tokens.tolist()] == expected.tolist()


def test_a_selection_keeps_the_numbers_of_the_whole(data: Path, tmp_path: Path) -> None:
    table = pq.read_table(encode(data, tmp_path, episodes="4,1").root / "data")
    episodes = open_dataset(data)
    assert list(dict.fromkeys(table["episode_index"].to_pylist())) == [4, 1]
    assert table["index"].to_pylist() == [*episodes.frames(4), *episodes.frames(1)]
    assert table["frame_index"].to_pylist() == [*range(episodes.lengths[4]), *range(episodes.lengths[1])]


def test_what_is_there_is_kept_and_what_is_missing_made(data: Path, tmp_path: Path) -> None:
    token_set = encode(data, tmp_path)
    files = [part_file(token_set.root, part) for part in range(token_set.info.num_parts)]
    before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]
    files[1].unlink()
    with pytest.raises(CorruptDataset, match=rf"1 of {len(files)} parts are missing; the same oat encode command"):
        decode_tokens(DecodeConfig(token_set.root, tmp_path / "actions"))
    encode(data, tmp_path)
    assert [file.read_bytes() for file in files] == [content for content, _ in before]
    kept = [file.stat().st_mtime_ns == time for file, (_, time) in zip(files, before, strict=True)]
    assert kept == [number != 1 for number in range(len(files))]
    files[0].write_bytes(files[0].read_bytes()[:100])
    with pytest.raises(CorruptDataset, match="remove it to have it made again"):
        encode(data, tmp_path)


def test_two_processes_write_the_same_files(data: Path, tmp_path: Path) -> None:
    alone = encode(data, tmp_path)
    together = encode(data, tmp_path, out=tmp_path / "together", workers=2)
    for part in range(alone.info.num_parts):
        assert part_file(alone.root, part).read_bytes() == part_file(together.root, part).read_bytes()


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_decoding_gives_the_tokenizer_s_chunks(kind: str, data: Path, tmp_path: Path) -> None:
    token_set = encode(data, tmp_path, kind, errors=False)
    tokenizer = token_set.load_tokenizer()
    decode_tokens(DecodeConfig(token_set.root, tmp_path / "actions", num_actions=3, workers=1))
    table = pq.read_table(tmp_path / "actions" / "data")
    tokens = pq.read_table(token_set.root / "data")
    expected = tokenizer.decode(tokens["tokens"].to_pylist(), num_actions=3)
    torch.testing.assert_close(torch.tensor(table["action"].to_pylist()), expected, atol=1e-5, rtol=1e-5)
    assert table["index"].to_pylist() == tokens["index"].to_pylist()


def test_prefixes_decode_and_other_actions_are_not_mixed_with_them(data: Path, tmp_path: Path) -> None:
    token_set = encode(data, tmp_path, errors=False)
    tokenizer = token_set.load_tokenizer()
    out = tmp_path / "coarse"
    decode_tokens(DecodeConfig(token_set.root, out, num_tokens=2, workers=1))
    ids = pq.read_table(token_set.root / "data")["tokens"].to_pylist()
    found = torch.tensor(pq.read_table(out / "data")["action"].to_pylist())
    torch.testing.assert_close(found, tokenizer.decode([row[:2] for row in ids]), atol=1e-5, rtol=1e-5)
    with pytest.raises(DatasetExists, match="made of other data, or in another way"):
        decode_tokens(DecodeConfig(token_set.root, out, num_tokens=3, workers=1))


def test_actions_relative_to_states_need_the_data(data: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_for(data, "bin", transform=Relative(dims=(0,), state_dims=(1,)))
    tokenizer.save(tmp_path / "relative")
    encode_dataset(EncodeConfig(data, tmp_path / "relative", tmp_path / "tokens", errors=False, workers=1))
    with pytest.raises(InvalidOption, match=r"relative to observation\.state: name the encoded data set with --data"):
        decode_tokens(DecodeConfig(tmp_path / "tokens", tmp_path / "actions"))
    decode_tokens(DecodeConfig(tmp_path / "tokens", tmp_path / "actions", data=data, workers=1))
    found = np.array(pq.read_table(tmp_path / "actions" / "data")["action"].to_pylist())
    windows = Windows(open_dataset(data), WindowConfig(HORIZON))
    assert np.abs(found - windows[np.arange(len(windows))].actions).max() < 0.1


def test_the_tokenizer_comes_along_with_its_fingerprint(data: Path, tmp_path: Path) -> None:
    token_set = encode(data, tmp_path)
    described = json.loads((token_set.root / "tokens.json").read_text())
    assert described["tokenizer_fingerprint"] == token_set.info.tokenizer_fingerprint
    (metadata,) = {pq.read_metadata(file).metadata[b"oat"] for file in (token_set.root / "data").iterdir()}
    assert json.loads(metadata)["tokenizer"] == token_set.info.tokenizer_fingerprint
    with pytest.raises(DatasetExists, match="holds tokens with another tokenizer; another --out"):
        encode(data, tmp_path, "bin")
    with pytest.raises(DatasetExists, match="holds tokens with another part_size"):
        encode(data, tmp_path, part_size=8)


def test_mistakes_have_names(data: Path, tmp_path: Path) -> None:
    token_set = encode(data, tmp_path, errors=False)
    wide = write_npz(tmp_path / "wide.npz", make_episodes(3, action_dim=5))
    with pytest.raises(InvalidOption, match="5-D actions, the tokenizer is for 3-D"):
        encode(wide, tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(DatasetExists, match="exists and holds no tokens"):
        encode(data, tmp_path, out=tmp_path / "mine")
    with pytest.raises(CorruptDataset, match="not what oat encode wrote"):
        TokenSet.open(tmp_path / "mine")
    with pytest.raises(InvalidOption, match="--num-tokens must be in 1…8, got 9"):
        decode_tokens(DecodeConfig(token_set.root, tmp_path / "actions", num_tokens=9))
    with pytest.raises(InvalidOption, match="--num-actions must be in 1…4, got 5"):
        decode_tokens(DecodeConfig(token_set.root, tmp_path / "actions", num_actions=5))
    with pytest.raises(InvalidOption, match="workers must be at least 1"):
        EncodeConfig(data, token_set.root, tmp_path, workers=0)
    with pytest.raises(InvalidOption, match="an address is for --backend ray"):
        DecodeConfig(token_set.root, tmp_path, address="here:1")


def test_the_commands_do_it(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer_for(data, "bin").save(tmp_path / "bin")
    main(["encode", str(data), "--tokenizer", str(tmp_path / "bin"), "--out", str(tmp_path / "t"), "--workers", "1"])
    main(["decode", str(tmp_path / "t"), "--out", str(tmp_path / "a"), "--workers", "1"])
    said = capsys.readouterr().out
    assert "chunks as tokens of bin" in said
    assert "chunks of 3-D actions" in said


def test_hugging_face_s_library_reads_it(data: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    token_set = encode(data, tmp_path)
    decode_tokens(DecodeConfig(token_set.root, tmp_path / "actions", workers=1))
    read = {
        name: datasets.load_dataset(
            "parquet", data_files=str(folder / "data/*.parquet"), cache_dir=str(tmp_path / "cache"), split="train"
        )
        for name, folder in {"tokens": token_set.root, "actions": tmp_path / "actions"}.items()
    }
    table = pq.read_table(token_set.root / "data")
    assert read["tokens"]["tokens"][:] == table["tokens"].to_pylist()
    assert read["tokens"][3]["index"] == 3
    assert len(read["tokens"][0]["error"]) == 8
    assert np.array(read["actions"].with_format("numpy")[0]["action"]).shape == (HORIZON, 3)


def test_ray_data_writes_the_same_files(data: Path, tmp_path: Path) -> None:
    """In a process of its own: Ray cannot start another cluster in the same one."""
    pytest.importorskip("ray")
    pytest.importorskip("pandas")
    (tmp_path / "home").mkdir()  # Ray keeps a token there
    alone = encode(data, tmp_path, errors=False)
    there = tmp_path / "there"
    words = ["encode", str(data), "--tokenizer", str(tmp_path / "tokenizer-oat"), "--out", str(there), "--no-errors"]
    words += ["--part-size", "7", "--workers", "2", "--backend", "ray"]
    command = [sys.executable, "-c", "from oat.cli import main; main()", *words]
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "RAY_USAGE_STATS_ENABLED": "0"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stderr
    for part in range(alone.info.num_parts):
        assert part_file(there, part).read_bytes() == part_file(alone.root, part).read_bytes()
