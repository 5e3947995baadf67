"""The tokenizers that come with the package: small, recorded, and found by name."""

import json
from pathlib import Path

import numpy as np
import pytest

import oat
from oat.cli import main
from oat.encoding.config import EncodeConfig
from oat.encoding.run import encode_dataset
from oat.errors import InvalidOption, UnknownName
from oat.tokenizers.ready_made import READY_MADE, find_tokenizer, names_for, path_of
from tests.datasets import make_episodes, write_npz

SHAPES = {"metaworld": (32, 4), "pusht": (32, 2), "robosuite": (32, 7)}


@pytest.mark.parametrize("name", READY_MADE)
def test_it_encodes_and_decodes(name: str) -> None:
    tokenizer = oat.get_tokenizer(name)
    assert (tokenizer.action_horizon, tokenizer.action_dim) == SHAPES[name]
    low, high, *_ = np.array(tokenizer.normalizer.ranges()).T
    line = np.linspace(low, high, 32, dtype=np.float32)[None]  # through the whole range, as a chunk may well go
    decoded = tokenizer.decode(tokenizer.encode(line)).numpy()
    assert np.mean(np.square((decoded - line) / (high - low))) < 0.1
    assert tokenizer.prefix_decodable


@pytest.mark.parametrize("name", READY_MADE)
def test_it_is_small_and_says_how_it_was_made(name: str) -> None:
    assert sum(file.stat().st_size for file in path_of(name).iterdir()) < 2e6
    record = oat.get_tokenizer(name).training_record
    assert record.command is not None
    assert "oat fit" in record.command
    assert record.measures is not None
    errors = record.measures.mse_of_prefix
    assert errors[8] < errors[4] < errors[1]
    for path in path_of(name).iterdir():
        assert b"/tmp" not in path.read_bytes()
        assert b"/work" not in path.read_bytes()


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'metaworld'\?.*Available: metaworld, pusht, robosuite"):
        oat.get_tokenizer("metaword")


def test_other_dimensions_are_told_which_fit(tmp_path: Path) -> None:
    data = write_npz(tmp_path / "set.npz", make_episodes(3, action_dim=2))
    with pytest.raises(InvalidOption, match=r"is for 4-D ones; of those in this package, pusht would fit"):
        encode_dataset(EncodeConfig(data, Path("metaworld"), tmp_path / "tokens"))
    assert names_for(4) == ["metaworld"]
    assert names_for(7) == ["robosuite"]
    assert names_for(11) == []


def test_a_directory_by_the_same_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_tokenizer("pusht").action_dim == 2
    oat.get_tokenizer("metaworld").save(tmp_path / "pusht")
    assert find_tokenizer("pusht").action_dim == 4


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    main(["tokenizers", "--json"])
    table = json.loads(capsys.readouterr().out)
    assert [row[0] for row in table["rows"]] == list(READY_MADE)
    assert all("Apache-2.0" in note for note in table["notes"][1:])
    main(["tokenizers"])
    assert "32 × 4" in capsys.readouterr().out
