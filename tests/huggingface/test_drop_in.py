"""The processor where FAST stands: whatever a model wrote decodes, and chunks in other units are noticed."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from oat.data.normalize import Normalizer
from oat.errors import CheckpointError, InvalidTokens
from oat.huggingface.processor import OATProcessor
from oat.tokenizers.oat import OATTokenizer
from tests.io.edits import set_value
from tests.policies.small import tokenizer_of
from tests.tokenizers.fitted import DIM, HORIZON, smooth_chunks

PALIGEMMA_WORD, SEGMENT, FASTS = 255_903, -77, 1023
"""What openpi's `extract_actions` makes of a stray word, of a `<seg>` token, and FAST's last id."""


def processor(fallback: str = "hold") -> OATProcessor:
    """With a head that does not decode everything to zero."""
    tokenizer = tokenizer_of("oat")
    assert isinstance(tokenizer, OATTokenizer)
    return OATProcessor(tokenizer, fallback)


def extract_actions(tokenizer: OATProcessor, ids: list[int]) -> np.ndarray:
    """Call it as openpi's `FASTTokenizer.extract_actions` does, with ids as they come from the language model."""
    return tokenizer.decode([np.array(ids, np.int64).tolist()], time_horizon=HORIZON, action_dim=DIM)[0]


@pytest.mark.parametrize("stray", [PALIGEMMA_WORD, SEGMENT, FASTS, 1000])
def test_ids_are_taken_until_the_first_that_is_no_action_token(stray: int) -> None:
    tokenizer = processor()
    expected = tokenizer.oat.decode([[17, 4, 256]])[0].numpy()
    assert np.array_equal(extract_actions(tokenizer, [17, 4, 256, stray, 5]), expected)
    assert tokenizer.malformed == 0


@pytest.mark.parametrize("ids", [[], [PALIGEMMA_WORD], [SEGMENT, 3, 4]])
def test_where_nothing_is_left_the_mean_chunk_stands_and_is_counted(ids: list[int]) -> None:
    tokenizer = processor()
    with pytest.warns(UserWarning, match="row 0 .* holds no action token.* 0…999; the mean chunk stands"):
        held = extract_actions(tokenizer, ids)
    assert np.abs(held - smooth_chunks(500).mean(0).numpy()).max() < 0.05
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        both = tokenizer.decode([[1], ids], HORIZON - 3, DIM)
    assert np.array_equal(both[1], held[: HORIZON - 3])
    np.testing.assert_allclose(both[0], tokenizer.decode([[1]])[0, : HORIZON - 3], atol=1e-5)
    assert tokenizer.malformed == 2


def test_zeros_or_an_error_may_stand_instead() -> None:
    with pytest.warns(UserWarning, match="zeros stand"):
        assert not extract_actions(processor("zeros"), []).any()
    strict = processor("raise")
    with pytest.raises(InvalidTokens, match="row 1 is empty: it holds no action token"):
        strict.decode([[5], []])
    with pytest.raises(InvalidTokens, match="row 0 begins with -77"):
        strict.decode([[SEGMENT]])
    assert strict.malformed == 2


def test_the_library_s_own_decode_stays_strict() -> None:
    tokenizer = processor().oat
    for ids in ([], [1000], [-1]):
        with pytest.raises(InvalidTokens):
            tokenizer.decode([ids])


def test_it_has_what_callers_of_tokenizers_expect() -> None:
    tokenizer = processor()
    ids = tokenizer(smooth_chunks(3))
    assert len(tokenizer) == tokenizer.vocab_size == 1000
    assert np.array_equal(tokenizer.batch_decode(ids, HORIZON, DIM), tokenizer.decode(ids))
    np.testing.assert_allclose(tokenizer.decode(ids, 5, DIM), tokenizer.decode(ids)[:, :5], atol=1e-5)


def test_the_mean_chunk_and_the_fallback_survive_saving(tmp_path: Path) -> None:
    tokenizer = processor()
    tokenizer.save_pretrained(tmp_path / "processor")
    loaded = OATProcessor.from_pretrained(tmp_path / "processor", fallback="zeros")
    assert loaded.fallback == "zeros"
    assert torch.equal(loaded.oat.mean_chunk, tokenizer.oat.mean_chunk)
    assert bool(loaded.oat.mean_chunk.any())
    set_value(tmp_path / "processor", "mean_chunk", [[1.0, 2.0]])
    with pytest.raises(CheckpointError, match="mean_chunk must be 16 × 3 finite numbers, it is 1 × 2"):
        OATProcessor.from_pretrained(tmp_path / "processor")


def z_scored(chunks: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Normalise as openpi does, by mean and deviation of each dimension."""
    return (chunks - data.mean((0, 1))) / data.std((0, 1))


def encode_quietly(tokenizer: OATProcessor, chunks: torch.Tensor) -> list[list[int]]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return tokenizer(chunks)


def test_chunks_in_other_units_are_told_once() -> None:
    chunks = smooth_chunks(200, seed=3)
    tokenizer = processor()
    assert len(encode_quietly(tokenizer, chunks)) == 200
    with pytest.warns(UserWarning, match=r"% of the numbers lie outside .*fitted to .*given .*inputs=\"normalized\""):
        tokenizer(chunks * 20)
    encode_quietly(tokenizer, chunks * 20)
    narrow = processor()
    for chunk in chunks[:31] / 100:  # one at a time, as openpi does
        encode_quietly(narrow, chunk[None])
    with pytest.warns(UserWarning, match=r"take up .* % of the range"):
        narrow(chunks[31:32] / 100)


def test_a_few_chunks_that_hardly_move_are_no_reason() -> None:
    encode_quietly(processor(), smooth_chunks(20) / 100)


def test_it_can_be_saved_for_programs_that_normalise_before(tmp_path: Path) -> None:
    """The same tokens, and the same chunks in the other units."""
    data = smooth_chunks(500) * torch.tensor([100.0, 0.01, 1.0])
    tokenizer = tokenizer_of("oat")
    assert isinstance(tokenizer, OATTokenizer)
    mean = data.mean((0, 1)).numpy()
    deviation = data.std((0, 1)).numpy()
    statistics = Normalizer.from_range(mean - deviation, mean + deviation)
    statistics.low.copy_(z_scored(data, data).amin((0, 1)))
    statistics.high.copy_(z_scored(data, data).amax((0, 1)))
    tokenizer.normalizer = statistics
    tokenizer.save_pretrained(tmp_path / "raw")
    OATProcessor(tokenizer).save_pretrained(tmp_path / "normalized", inputs="normalized")
    raw = OATProcessor.from_pretrained(tmp_path / "raw")
    normalized = OATProcessor.from_pretrained(tmp_path / "normalized")
    assert (raw.oat.space.inputs, normalized.oat.space.inputs) == ("actions", "normalized")
    tokens = encode_quietly(raw, data[:50])
    assert encode_quietly(normalized, z_scored(data[:50], data)) == tokens
    decoded = torch.from_numpy(raw.decode(tokens))
    torch.testing.assert_close(
        torch.from_numpy(normalized.decode(tokens)), z_scored(decoded, data), atol=1e-4, rtol=1e-4
    )
    with pytest.warns(UserWarning, match="expects normalised actions"):
        normalized(data[:50])
    normalized.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again/config.json").read_bytes() == (tmp_path / "normalized/config.json").read_bytes()


def test_it_can_be_fitted_to_normalised_chunks(tmp_path: Path) -> None:
    data = smooth_chunks(60) * torch.tensor([100.0, 0.01, 1.0])
    chunks = z_scored(data, data)
    fitted = OATProcessor.fit(list(chunks), normalized=True, preset="tiny", steps=1)
    assert fitted.oat.space.inputs == "normalized"
    assert torch.equal(fitted.oat.to_model_space(chunks), chunks)
    assert "normalized=True" in str(fitted.oat.training_record.command)
    with pytest.warns(UserWarning, match="expects normalised actions"):
        fitted(data)
