"""The laws that every registered tokenizer obeys (paper, section III), and the failures that the paper names."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oat.data.normalize import Normalizer
from oat.data.transforms import Relative
from oat.errors import (
    CheckpointError,
    InvalidActions,
    InvalidObservation,
    InvalidOption,
    InvalidTokens,
    NotFitted,
    TransformError,
    UndecodableTokens,
    UnknownName,
)
from oat.tokenizers import TOKENIZERS, autoencoder
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens
from tests.tokenizers.fitted import DIM, HORIZON, fitted, smooth_chunks, untrained

KINDS = list(TOKENIZERS)
TOTAL = [kind for kind in KINDS if TOKENIZERS[kind].total]
RANDOM_LENGTHS = {"oat": (1, 8), "rvq": (1, 8), "bin": (48, 48), "quest": (4, 4)}


@pytest.mark.parametrize("kind", KINDS)
def test_p1_as_many_tokens_as_declared(kind: str) -> None:
    tokenizer = fitted(kind)
    tokens = tokenizer.encode(smooth_chunks(64, seed=1))
    assert tokens.lengths.max() <= tokenizer.max_tokens
    if tokenizer.total:
        assert (tokens.lengths == tokenizer.max_tokens).all()
    assert tokens.ids.min() >= 0
    assert tokens.ids.max() < tokenizer.vocab_size


@pytest.mark.parametrize("kind", TOTAL)
@given(seed=st.integers(0, 10**6), data=st.data())
@settings(max_examples=15)
def test_p2_every_sequence_decodes_inside_the_data_s_range(kind: str, seed: int, data: st.DataObject) -> None:
    tokenizer = fitted(kind)
    generator = torch.Generator().manual_seed(seed)
    lengths = [data.draw(st.integers(*RANDOM_LENGTHS[kind])) for _ in range(8)]
    rows = [torch.randint(0, tokenizer.vocab_size, (n,), generator=generator).tolist() for n in lengths]
    actions = tokenizer.decode(rows)
    assert actions.shape == (8, HORIZON, DIM)
    assert torch.isfinite(actions).all()
    low, high = smooth_chunks(500).amin((0, 1)), smooth_chunks(500).amax((0, 1))
    assert ((actions >= low - 1e-4) & (actions <= high + 1e-4)).all()


def test_p2_fast_is_partial_as_the_paper_says() -> None:
    """One substituted token makes most sequences undecodable; those are reported, and the others are not lost."""
    tokenizer = fitted("fast")
    rows = tokenizer.encode(smooth_chunks(300, seed=1)).tolist()
    generator = np.random.default_rng(0)
    for row in rows[:250]:
        row[generator.integers(len(row))] = int(generator.integers(tokenizer.vocab_size))
    actions, valid = tokenizer.try_decode(rows)
    assert valid[250:].all()
    assert float((~valid[:250]).float().mean()) > 0.3
    assert torch.isfinite(actions[valid]).all()
    assert torch.isnan(actions[~valid]).all()  # never zeros that a robot would execute
    with pytest.raises(UndecodableTokens, match=r"expands to \d+ coefficients, but a chunk of 16 × 3 has 48"):
        tokenizer.decode(rows)


@pytest.mark.parametrize("kind", ["bin", "fast"])
def test_analytic_tokenizers_reconstruct_what_they_encode(kind: str) -> None:
    tokenizer, chunks = fitted(kind), smooth_chunks(200, seed=2)
    low, high = smooth_chunks(500).amin((0, 1)), smooth_chunks(500).amax((0, 1))
    inside = chunks[((chunks > low) & (chunks < high)).all(2).all(1)]
    error = (tokenizer.decode(tokenizer.encode(inside)) - inside).abs()
    widest = float((high - low).max())
    assert error.max() <= (widest / 256 / 2 + 1e-4 if kind == "bin" else 0.25 * widest)


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_depends_on_the_chunk_alone(kind: str) -> None:
    tokenizer, chunks = fitted(kind), smooth_chunks(200, seed=3)
    whole = tokenizer.encode(chunks).tolist()
    assert tokenizer.encode(chunks).tolist() == whole
    assert [tokenizer.encode(chunks[i : i + 1]).tolist()[0] for i in range(40)] == whole[:40]
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    shuffled = tokenizer.encode(chunks[order]).tolist()
    assert [shuffled[int(i)] for i in torch.argsort(order)] == whole
    tokenizer.train()
    assert tokenizer.encode(chunks).tolist() == whole
    tokenizer.eval()


@pytest.mark.parametrize("kind", ["oat", "quest"])
def test_tokens_are_equal_on_one_and_two_threads(kind: str) -> None:
    tokenizer, chunks, threads = fitted(kind), smooth_chunks(600, seed=4), torch.get_num_threads()
    try:
        found = []
        for number in (1, 2):
            torch.set_num_threads(number)
            found.append(tokenizer.encode(chunks).ids)
        assert torch.equal(*found)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", KINDS)
def test_eight_threads_give_the_bits_of_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding and decoding are functions of the weights: no call changes anything that another one could see."""
    monkeypatch.setattr(autoencoder, "_BORDERLINE", 0.05)  # in every call some chunks are computed again in double
    tokenizer, chunks = fitted(kind), smooth_chunks(60, seed=3)
    expected = tokenizer.encode(chunks)
    actions = tokenizer.decode(expected)

    def again(_: int) -> bool:
        tokens = tokenizer.encode(chunks)
        return torch.equal(tokens.ids, expected.ids) and torch.equal(tokenizer.decode(tokens), actions)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(again, range(80)))


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_and_torch_are_alike(kind: str) -> None:
    tokenizer, chunks = fitted(kind), smooth_chunks(5)
    assert tokenizer.encode(chunks.numpy()).tolist() == tokenizer.encode(chunks).tolist()
    tokens = tokenizer.encode(chunks)
    torch.testing.assert_close(tokenizer.decode(tokens.tolist()), tokenizer.decode(tokens))


@pytest.mark.parametrize("kind", ["oat", "quest"])
def test_invented_steps_do_not_change_the_tokens(kind: str) -> None:
    tokenizer, chunks = fitted(kind), smooth_chunks(50, seed=5)
    valid = torch.arange(HORIZON) < torch.randint(1, HORIZON + 1, (50, 1), generator=torch.Generator().manual_seed(0))
    other = torch.where(valid[..., None], chunks, smooth_chunks(50, seed=6))
    assert len(set(map(tuple, tokenizer.encode(chunks).tolist()))) > 25
    assert torch.equal(tokenizer.encode(chunks, valid).ids, tokenizer.encode(other, valid).ids)
    assert not torch.equal(tokenizer.encode(chunks).ids, tokenizer.encode(other).ids)


@pytest.mark.parametrize("kind", KINDS)
@given(scale=st.sampled_from([10.0, 1e6, 1e30]))
@settings(max_examples=3)
def test_values_far_outside_encode_to_the_nearest_chunk(kind: str, scale: float) -> None:
    tokenizer, chunks = fitted(kind), smooth_chunks(20, seed=7)
    tokens = tokenizer.encode(scale * chunks)
    assert tokens.clipped is not None
    assert tokens.clipped.min() > 0.2
    assert torch.isfinite(tokenizer.decode(tokens)).all()
    edge = (scale * chunks).clamp(smooth_chunks(500).amin((0, 1)), smooth_chunks(500).amax((0, 1)))
    assert tokenizer.encode(edge).tolist() == tokens.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_moved_it_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer, chunks = fitted(kind), smooth_chunks(30, seed=8)
    tokens = tokenizer.encode(chunks)
    tokenizer.save(tmp_path / "a")
    shutil.move(tmp_path / "a", tmp_path / "b")
    loaded = TOKENIZERS[kind].load(tmp_path / "b")
    assert loaded.encode(chunks).tolist() == tokens.tolist()
    assert torch.equal(loaded.decode(tokens), tokenizer.decode(tokens))
    np.save(tmp_path / "chunks.npy", chunks.numpy())
    code = (
        "import sys, json, numpy as np; from oat.tokenizers import TOKENIZERS\n"
        "print(json.dumps(TOKENIZERS[sys.argv[1]].load(sys.argv[2]).encode(np.load(sys.argv[3])).tolist()))"
    )
    command = [sys.executable, "-c", code, kind, str(tmp_path / "b"), str(tmp_path / "chunks.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tokens.tolist())
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["README.md", "config.json", "model.safetensors"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_stands_for_its_best_checkpoint(kind: str, tmp_path: Path) -> None:
    fitted(kind).save(tmp_path / "run" / "best")
    chunks = smooth_chunks(3, seed=9)
    assert TOKENIZERS[kind].load(tmp_path / "run").encode(chunks).tolist() == fitted(kind).encode(chunks).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_bad_actions_are_refused(kind: str) -> None:
    tokenizer = fitted(kind)
    with pytest.raises(InvalidActions, match=r"must be \(batch, 16, 3\), got \(2, 8, 3\)"):
        tokenizer.encode(torch.zeros(2, 8, 3))
    with pytest.raises(InvalidActions, match=r"actions\[1, 4, 2\] is nan"):
        chunk = torch.zeros(2, HORIZON, DIM)
        chunk[1, 4, 2] = torch.nan
        tokenizer.encode(chunk)
    with pytest.raises(InvalidActions, match="valid_mask must be"):
        tokenizer.encode(torch.zeros(2, HORIZON, DIM), torch.ones(2, 3))
    with pytest.raises(InvalidActions, match="first step"):
        tokenizer.encode(torch.zeros(1, HORIZON, DIM), torch.zeros(1, HORIZON))


@pytest.mark.parametrize("wrong", [np.full((2, HORIZON, DIM), None), np.full((2, HORIZON, DIM), "a")])
def test_arrays_without_numbers_are_refused(wrong: np.ndarray) -> None:
    tokenizer, chunks = fitted("bin"), smooth_chunks(2)
    with pytest.raises(InvalidActions, match="actions must be numbers, got an array of"):
        tokenizer.encode(wrong)
    with pytest.raises(InvalidActions, match="valid_mask must be numbers, got an array of"):
        tokenizer.encode(chunks, wrong[..., 0])
    with pytest.raises(InvalidObservation, match="state must be numbers, got an array of"):
        tokenizer.encode(chunks, state=wrong[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_bad_tokens_are_refused(kind: str) -> None:
    tokenizer = fitted(kind)
    length = tokenizer.max_tokens
    for wrong in (-1, tokenizer.vocab_size):
        with pytest.raises(InvalidTokens, match=f"is {wrong}; ids must be in 0…{tokenizer.vocab_size - 1}"):
            tokenizer.decode([[0] * (length - 1) + [wrong]])
    for count in (0, length + 1):
        with pytest.raises(InvalidTokens, match="decodes"):
            tokenizer.decode([[0] * count])
    if not tokenizer.prefix_decodable and tokenizer.total:
        with pytest.raises(InvalidTokens, match=f"decodes {length} tokens"):
            tokenizer.decode([[0] * (length - 1)])
    with pytest.raises(InvalidOption, match="num_actions must be in 1…16"):
        tokenizer.decode(tokenizer.encode(smooth_chunks(1)), num_actions=17)


@pytest.mark.parametrize("wrap", [np.array, torch.tensor])
def test_arrays_that_are_no_rows_of_tokens_are_refused(wrap: Callable[[object], Any]) -> None:
    for wrong in ([1, 2], [[[1]]], 1, [[1.7, 2.9]], [[True, False]]):
        with pytest.raises(InvalidTokens, match=r"whole numbers \(batch, tokens\), got"):
            fitted("oat").decode(wrap(wrong))
    assert torch.equal(fitted("oat").decode(wrap([[1, 2]])), fitted("oat").decode([[1, 2]]))


def test_lists_that_are_no_rows_of_tokens_are_refused(tmp_path: Path) -> None:
    """In another process, where types are not checked before."""
    fitted("bin").save(tmp_path)
    code = """
import sys, oat
tokenizer = oat.load_tokenizer(sys.argv[1])
for wrong in ([17, 4, 256], [["a"]], [[1.7, 2.9]], [[2**70]], 5):
    try:
        tokenizer.decode(wrong)
    except oat.errors.InvalidTokens as error:
        assert "rows of whole numbers" in str(error), error
    else:
        raise AssertionError(wrong)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_bad_states_are_refused() -> None:
    """Where the transform refers to one, in both directions; nothing else looks at it."""
    space = ActionSpace(HORIZON, DIM, Relative(), state_dim=DIM)
    tokenizer, chunks = untrained("bin", space), smooth_chunks(2)
    tokenizer.normalizer = Normalizer.from_range(np.full(DIM, -9.0), np.full(DIM, 9.0))
    tokenizer.normalizer.low.fill_(-1.0)
    tokenizer.normalizer.high.fill_(1.0)
    tokens = tokenizer.encode(chunks, state=torch.zeros(2, DIM))
    for wrong in (torch.zeros(DIM), torch.zeros(1, DIM), torch.zeros(2, DIM + 1), torch.zeros(2, 1, DIM)):
        for use in (partial(tokenizer.encode, chunks), partial(tokenizer.decode, tokens)):
            with pytest.raises(InvalidObservation, match=r"state must be \(2, 3\), got"):
                use(state=wrong)
    missing = torch.zeros(2, DIM)
    missing[1, 2] = torch.nan
    for use in (partial(tokenizer.encode, chunks), partial(tokenizer.decode, tokens)):
        with pytest.raises(InvalidObservation, match=r"state\[1, 2\] is nan"):
            use(state=missing)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_never_fitted_says_so(kind: str, tmp_path: Path) -> None:
    """Neither encodes nor decodes nor is saved; once it was fitted and saved, what is loaded does all three."""
    tokenizer = untrained(kind, ActionSpace(HORIZON, DIM))
    assert not tokenizer.is_fitted
    uses: tuple[Callable[[], object], ...] = (
        lambda: tokenizer.encode(smooth_chunks(2)),
        lambda: tokenizer.decode([[0] * tokenizer.max_tokens]),
        lambda: tokenizer.try_decode([[0] * tokenizer.max_tokens]),
        lambda: tokenizer.save(tmp_path / "tokenizer"),
    )
    for use in uses:
        with pytest.raises(NotFitted, match=f"this {type(tokenizer).__name__} was never fitted"):
            use()
    assert not (tmp_path / "tokenizer").exists()
    fitted(kind).save(tmp_path / "tokenizer")
    loaded = TOKENIZERS[kind].load(tmp_path / "tokenizer")
    assert loaded.is_fitted
    loaded.save(tmp_path / "again")


@pytest.mark.parametrize("kind", KINDS)
def test_fitting_gives_what_encodes_and_decodes(kind: str) -> None:
    chunks = smooth_chunks(200, seed=10)
    steps = 3 if TOKENIZERS.config(kind).trained() else None
    tokenizers = [
        TOKENIZERS[kind].fit(chunks.numpy(), preset="tiny", steps=steps, seed=1, progress=False) for _ in range(2)
    ]
    tokenizer = tokenizers[0]
    assert type(tokenizer) is TOKENIZERS[kind]
    assert tokenizer.space == ActionSpace(HORIZON, DIM)
    assert tokenizer.decode(tokenizer.encode(chunks)).shape == chunks.shape
    assert tokenizer.training_record.measures is not None
    states = [each.state_dict() for each in tokenizers]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())  # the seed decides
    low = chunks[:180].amin((0, 1))  # the last tenth is held out, also of the range
    torch.testing.assert_close(tokenizer.normalizer.denormalize(tokenizer.normalizer.low), low)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_chunks_are_not_fitted_to(kind: str) -> None:
    fit = partial(TOKENIZERS[kind].fit, preset="tiny", progress=False)
    for shape in ((10, HORIZON), (0, HORIZON, DIM), (10, HORIZON, 0), (2, 10, HORIZON, DIM)):
        with pytest.raises(InvalidActions, match=rf"chunks must be \(chunks, .*, got {re.escape(str(shape))}"):
            fit(np.zeros(shape, np.float32))
    chunks = smooth_chunks(10).numpy()
    chunks[3, 2, 1] = np.inf
    with pytest.raises(InvalidActions, match=r"actions\[3, 2, 1\] is inf"):
        fit(chunks)
    with pytest.raises(InvalidActions, match=r"valid_mask must be \(10, 16\), got \(10, 3\)"):
        fit(smooth_chunks(10), np.ones((10, 3), bool))
    with pytest.raises(InvalidObservation, match=r"state must be \(10, 3\), got \(9, 3\)"):
        fit(smooth_chunks(10), states=np.zeros((9, DIM), np.float32), transform="relative")
    with pytest.raises(TransformError, match="needs the current state"):
        fit(smooth_chunks(10), transform="relative")
    with pytest.raises(InvalidActions, match="at least 2 chunks"):
        fit(smooth_chunks(1))
    with pytest.raises(UnknownName, match="unknown preset 'tin'"):
        fit(smooth_chunks(10), preset="tin")
    with pytest.raises(UnknownName, match=f"unknown option of {TOKENIZERS[kind].__name__} 'horizons'"):
        fit(smooth_chunks(10), horizons=3)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_and_minutes_are_for_what_is_trained(kind: str) -> None:
    fit = partial(TOKENIZERS[kind].fit, smooth_chunks(100), preset="tiny", progress=False)
    if not TOKENIZERS.config(kind).trained():
        for budget in ({"steps": 5}, {"minutes": 1.0}):
            with pytest.raises(InvalidOption, match="fitted at once and not trained"):
                fit(**budget)
        return
    with pytest.raises(InvalidOption, match="steps or after minutes"):
        fit(steps=5, minutes=1.0)
    with pytest.raises(InvalidOption, match="minutes must be positive"):
        fit(minutes=0.0)
    begin = time.perf_counter()
    timed = fit(minutes=0.02)
    assert 1.2 < time.perf_counter() - begin < 20
    record = timed.training_record
    assert record.recipe is not None
    assert record.step == record.recipe["steps"] >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_steps_are_those_of_the_whole(kind: str) -> None:
    tokenizer = fitted(kind)
    tokens = tokenizer.encode(smooth_chunks(10))
    torch.testing.assert_close(tokenizer.decode(tokens, num_actions=5), tokenizer.decode(tokens)[:, :5])


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    fitted("oat").save(tmp_path / "oat")
    with pytest.raises(CheckpointError, match="holds 'oat', expected quest"):
        TOKENIZERS["quest"].load(tmp_path / "oat")
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        TOKENIZERS["oat"].load(tmp_path / "none")
    weights = tmp_path / "oat" / "model.safetensors"
    whole = weights.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1])):
        weights.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="is damaged"):
            TOKENIZERS["oat"].load(tmp_path / "oat")
    weights.write_bytes(whole)
    config = tmp_path / "oat" / "config.json"
    config.write_text(config.read_text().replace('"version": 1', '"version": 99'))
    with pytest.raises(CheckpointError, match="version 99"):
        TOKENIZERS["oat"].load(tmp_path / "oat")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a").write_text("")
    (tmp_path / "language-model").mkdir()
    (tmp_path / "language-model" / "config.json").write_text('{"model_type": "llama"}')
    for taken in ("notes", "language-model"):
        with pytest.raises(CheckpointError, match="not overwritten"):
            fitted("oat").save(tmp_path / taken)


def test_tokens_are_sliced_by_prefix() -> None:
    tokens = Tokens.from_lists([[1, 2, 3], [4], [5, 6]])
    assert tokens[:, :2].tolist() == [[1, 2], [4], [5, 6]]
    assert tokens[1:].tolist() == [[4], [5, 6]]
    assert tokens[torch.tensor([2, 0]), :1].tolist() == [[5], [1]]
    with pytest.raises(InvalidOption, match="prefixes"):
        tokens[:, 1:]
