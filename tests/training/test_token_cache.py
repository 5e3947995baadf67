"""Tokens for teaching: computed once, the tokenizer's own, and computed again when anything changes them."""

import copy
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import IMAGES, STATE, Episodes
from oat.data.transforms import Relative
from oat.io.training_record import TrainingRecord
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.fast import FASTTokenizer
from oat.training.token_cache import cache_tokens, encode_batch
from tests.policies.small import tokenizer_of
from tests.tokenizers.fitted import DIM, HORIZON, fitted_to, smooth_chunks

CAMERA = IMAGES + "front"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OAT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokens"


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many chunks each kind of tokenizer encoded."""
    counted, original = Counter[str](), BaseTokenizer.encode

    def count(tokenizer: BaseTokenizer, actions: Any, *rest: Any, **options: Any) -> Any:
        counted[tokenizer.kind] += len(actions)
        return original(tokenizer, actions, *rest, **options)

    monkeypatch.setattr(BaseTokenizer, "encode", count)
    return counted


def _episodes(seed: int = 0) -> Episodes:
    actions = smooth_chunks(6, seed).reshape(-1, DIM).numpy()
    states = np.random.default_rng(seed).normal(size=(len(actions), DIM)).astype(np.float32)
    return Episodes.from_arrays(actions, [30, 26, 40], observations={STATE: states})


def _windows(episodes: Episodes | None = None, *keys: str, obs_horizon: int = 2) -> Windows:
    return Windows(episodes or _episodes(), WindowConfig(HORIZON, obs_horizon, keys))


@pytest.mark.parametrize("kind", ["fast", "quest", "oat"])
def test_tokens_are_the_tokenizer_s_and_computed_once(kind: str, encoded: Counter[str], cache: Path) -> None:
    tokenizer, windows = tokenizer_of(kind), _windows()
    first = cache_tokens(tokenizer, windows)
    assert encoded.total() == len(windows) == len(first)
    again = cache_tokens(copy.deepcopy(tokenizer), _windows())
    assert encoded.total() == len(windows)
    assert len(list(cache.iterdir())) == 1
    numbers = np.array([90, 3, 3, 29, 30, 55, 95])
    batch = windows[numbers]
    expected = tokenizer.encode(batch.actions, batch.valid_mask)
    for each in (first, again):
        assert each[numbers].tolist() == expected.tolist()
        assert each.longest == int(tokenizer.encode(*_all(windows)).lengths.max())
    assert encode_batch(tokenizer, batch).tolist() == expected.tolist()


def test_searched_tokens_are_kept_apart_from_the_encoder_s(cache: Path) -> None:
    tokenizer, windows = tokenizer_of("oat"), _windows()
    plain = cache_tokens(tokenizer, windows)
    searched = cache_tokens(tokenizer, windows, search=1)
    numbers = np.arange(8)
    batch = windows[numbers]
    assert searched[numbers].tolist() != plain[numbers].tolist()
    assert len(list(cache.iterdir())) == 2
    assert encode_batch(tokenizer, batch, search=1).ids.shape == searched[numbers].ids.shape


def _all(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    batch = windows[np.arange(len(windows))]
    return batch.actions, batch.valid_mask


def test_invented_steps_are_left_out() -> None:
    """The last window of an episode has one real step; its tokens are not those of that step repeated."""
    tokenizer, windows = tokenizer_of("oat"), _windows()
    lasts = np.array([29, 55, 95])
    cached, batch = cache_tokens(tokenizer, windows)[lasts], windows[lasts]
    assert batch.valid_mask.sum(1).tolist() == [1, 1, 1]
    other = batch.actions.copy()
    other[:, 1:] = 0.7
    assert cached.tolist() == tokenizer.encode(other, batch.valid_mask).tolist()
    assert cached.tolist() != tokenizer.encode(batch.actions).tolist()


def _changed_weights(tokenizer: BaseTokenizer) -> BaseTokenizer:
    next(iter(tokenizer.parameters())).data[0] += 1
    return tokenizer


def _changed_statistics(tokenizer: BaseTokenizer) -> BaseTokenizer:
    tokenizer.normalizer.center += 0.5
    return tokenizer


def test_whatever_changes_a_token_changes_the_cache(encoded: Counter[str], cache: Path) -> None:
    episodes, tokenizer = _episodes(), tokenizer_of("oat")
    shorter = fitted_to(smooth_chunks(50, horizon=8), "oat")
    edited = episodes.actions.copy()
    edited[40] += 1e-3
    cases: list[tuple[str, BaseTokenizer, Windows]] = [
        ("same", tokenizer, _windows()),
        ("weights", _changed_weights(tokenizer_of("oat")), _windows()),
        ("statistics", _changed_statistics(tokenizer_of("oat")), _windows()),
        ("kind", tokenizer_of("quest"), _windows()),
        ("horizon", shorter, Windows(episodes, WindowConfig(8, 2))),
        ("split", tokenizer, _windows(episodes.select([0, 2]))),
        ("order", tokenizer, _windows(episodes.select([2, 1, 0]))),
        ("one action", tokenizer, _windows(replace(episodes, actions=edited))),
        ("ends", tokenizer, _windows(Episodes.from_arrays(episodes.actions, [30, 27, 39]))),
    ]
    for files, (name, each, windows) in enumerate(cases, start=1):
        before = encoded.total()
        table = cache_tokens(each, windows)
        assert encoded.total() == before + len(windows), name
        assert len(list(cache.iterdir())) == files, name
        batch = windows[np.arange(len(windows))]
        assert table[np.arange(len(windows))].tolist() == each.encode(batch.actions, batch.valid_mask).tolist(), name
        encoded[each.kind] -= len(windows)


def test_merges_change_the_cache(encoded: Counter[str]) -> None:
    one, two = tokenizer_of("fast"), tokenizer_of("fast")
    assert isinstance(two, FASTTokenizer)
    two.fit_normalized(two.to_model_space(smooth_chunks(500, seed=9)))
    two.lowest, two.highest = one.get_buffer("lowest"), one.get_buffer("highest")
    for tokenizer in (one, two):
        cache_tokens(tokenizer, _windows())
    assert encoded.total() == 2 * len(_windows())


def test_what_does_not_change_tokens_does_not_change_the_cache(encoded: Counter[str]) -> None:
    tokenizer = tokenizer_of("oat")
    for windows in (_windows(), _windows(obs_horizon=1), _windows(None, STATE)):
        cache_tokens(tokenizer, windows)
    tokenizer.training_record = TrainingRecord(data="elsewhere")
    cache_tokens(tokenizer.train(), _windows())
    assert encoded.total() == len(_windows())


def test_relative_actions_are_encoded_with_their_state(encoded: Counter[str]) -> None:
    torch.manual_seed(0)
    states = np.zeros((50, DIM), np.float32)
    tokenizer = fitted_to(smooth_chunks(50), "oat", transform=Relative(), states=states)
    episodes = _episodes()
    windows = _windows(episodes, STATE)
    cached = cache_tokens(tokenizer, windows)
    batch = windows[np.arange(len(windows))]
    expected = tokenizer.encode(batch.actions, batch.valid_mask, batch.observations[STATE][:, -1])
    assert cached[np.arange(len(windows))].tolist() == expected.tolist()
    before = encoded.total()
    moved = replace(episodes, observations={STATE: np.asarray(episodes.observations[STATE]) + 0.3})
    cache_tokens(tokenizer, _windows(moved, STATE))
    assert encoded.total() == before + len(windows)


def test_images_are_not_read() -> None:
    class Unread:
        """Frames that must not be decoded."""

        shape, dtype = (96, 8, 8, 3), np.dtype(np.uint8)

        def __getitem__(self, frames: np.ndarray | slice, /) -> np.ndarray:
            raise AssertionError("an image was read to encode actions")

    episodes = replace(_episodes(), observations={CAMERA: Unread()})
    assert len(cache_tokens(tokenizer_of("quest"), _windows(episodes, CAMERA))) == 96


def test_a_damaged_cache_is_computed_again(
    encoded: Counter[str], cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that a disk error cut short, that is no array at all, or one of other tokens, and this is told."""
    tokenizer, windows = tokenizer_of("quest"), _windows()
    expected = cache_tokens(tokenizer, windows)[np.arange(96)].tolist()
    (file,) = cache.iterdir()
    table = np.load(file)
    contents = [file.read_bytes()[:-100], b"", b"nonsense"]
    for wrong in (table[:50], table + tokenizer.vocab_size, -1 - table, table.astype(np.int64), table[0]):
        np.save(tmp_path / "wrong.npy", wrong)
        contents.append((tmp_path / "wrong.npy").read_bytes())
    capsys.readouterr()
    for content in contents:
        file.unlink()
        file.write_bytes(content)
        assert cache_tokens(tokenizer, windows)[np.arange(96)].tolist() == expected
        assert capsys.readouterr().err.startswith(f"note: {file} is damaged")
    assert encoded.total() == (1 + len(contents)) * len(windows)
