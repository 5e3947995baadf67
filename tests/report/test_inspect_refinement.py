"""The picture of chunks refined by their tokens."""

from pathlib import Path

import numpy as np
import pytest
import torch

from oat.errors import InvalidOption
from oat.report.inspect_refinement import draw_refinement, inspect_refinement
from oat.tokenizers.measures import ChunkBatch
from tests.tokenizers.fitted import DIM, HORIZON, fitted, smooth_chunks


def test_it_is_drawn_from_a_data_set(tmp_path: Path) -> None:
    fitted("oat").save(tmp_path / "tokenizer")
    actions = smooth_chunks(10).reshape(-1, DIM).numpy()
    np.savez(tmp_path / "set.npz", actions=actions, episode_ends=np.arange(1, 11) * HORIZON)
    inspect_refinement(tmp_path / "tokenizer", tmp_path / "set.npz", tmp_path / "picture.png")
    picture = (tmp_path / "picture.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert 20_000 < len(picture) < 150_000
    np.savez(tmp_path / "other.npz", actions=actions[:, :2], episode_ends=[len(actions)])
    with pytest.raises(InvalidOption, match=r"2-D actions, the tokenizer is for 3-D"):
        inspect_refinement(tmp_path / "tokenizer", tmp_path / "other.npz", tmp_path / "picture.png")


def test_only_what_has_prefixes_refines(tmp_path: Path) -> None:
    chunks = ChunkBatch(smooth_chunks(5), torch.ones(5, HORIZON, dtype=torch.bool), None)
    with pytest.raises(InvalidOption, match=r"fast has no prefixes"):
        draw_refinement(fitted("fast"), chunks, tmp_path / "picture.png")
