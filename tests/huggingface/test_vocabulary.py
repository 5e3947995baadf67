"""Action tokens inside a language model: a one-to-one map, and generation that writes nothing else."""

import sys
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from oat.errors import InvalidOption, InvalidTokens, MissingExtra
from oat.huggingface.vocabulary import ActionTokensOnly, ActionVocabulary

WORDS, EOS, SIZE = 40, 7, 24


def small_model() -> Any:
    torch.manual_seed(0)
    size: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32}
    size |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, eos_token_id=EOS, pad_token_id=EOS, **size)).eval()


@given(tokens=st.lists(st.integers(0, 999)), reuse=st.booleans())
def test_the_map_is_one_to_one(tokens: list[int], reuse: bool) -> None:
    vocabulary = ActionVocabulary.reuse(5000, 1000, skip=17) if reuse else ActionVocabulary(4000, 1000)
    ids = vocabulary.to_llm(tokens)
    assert vocabulary.from_llm(ids) == tokens
    assert vocabulary.mask(5000).sum() == 1000
    assert vocabulary.mask(5000)[ids].all()


def test_reused_ids_are_those_of_pi0_fast() -> None:
    """PaliGemma has 257,152 ids; there action token t is the id 257,152 - 1 - 128 - t."""
    vocabulary = ActionVocabulary.reuse(257_152, 1000, skip=128)
    assert vocabulary.to_llm([0, 1, 999]) == [257_023, 257_022, 256_024]
    assert vocabulary.lowest == 256_024


def test_reserved_ids_change_no_word() -> None:
    model, words = small_model(), torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        before = model(words).logits
        vocabulary = ActionVocabulary.reserve(model, SIZE)
        after = model(words).logits
    assert after.shape[-1] == WORDS + SIZE
    torch.testing.assert_close(after[..., :WORDS], before)
    assert vocabulary.to_llm([0, SIZE - 1]) == [WORDS, WORDS + SIZE - 1]


@pytest.mark.parametrize("number", [1, 3, 8])
@pytest.mark.parametrize("how", [{"do_sample": False}, {"do_sample": True, "top_k": 0}, {"num_beams": 3}])
def test_only_action_tokens_are_written_and_as_many_as_asked(number: int, how: dict[str, Any]) -> None:
    model = small_model()
    vocabulary = ActionVocabulary.reserve(model, SIZE)
    prompt = torch.tensor([[1, 2, 3], [WORDS + 1, WORDS + 2, 4]])  # the second has seen actions before
    processor = ActionTokensOnly(vocabulary, number, prompt_length=3, eos_token_id=EOS)
    mask = torch.ones_like(prompt)
    written = model.generate(prompt, attention_mask=mask, logits_processor=[processor], max_new_tokens=20, **how)
    assert written.shape == (2, 3 + number + 1)
    assert (written[:, -1] == EOS).all()
    for row in written[:, 3:-1].tolist():
        assert all(0 <= token < SIZE for token in vocabulary.from_llm(row))


def test_without_it_the_model_writes_words() -> None:
    """What the processor is for: a model that knows nothing seldom writes actions alone."""
    model = small_model()
    vocabulary = ActionVocabulary.reserve(model, SIZE)
    prompt = torch.tensor([[1, 2, 3]])
    written = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=True, top_k=0, eos_token_id=None
    )
    with pytest.raises(InvalidTokens, match="not one of the 24 action tokens"):
        vocabulary.from_llm(written[0, 3:].tolist())


def test_mistakes_have_names() -> None:
    vocabulary = ActionVocabulary.reuse(100, 20)
    with pytest.raises(InvalidTokens, match="id 20 at place 1 is not one"):
        vocabulary.to_llm([3, 20])
    with pytest.raises(InvalidTokens, match="id 79 at place 0 is not one"):
        vocabulary.from_llm([79])
    with pytest.raises(InvalidOption, match="do not fit into a vocabulary of 100"):
        ActionVocabulary.reuse(100, 90, skip=11)
    with pytest.raises(InvalidOption, match="cannot have ids from -1"):
        ActionVocabulary(-1, 5)
    with pytest.raises(InvalidOption, match="up to 99, the model's vocabulary only 50"):
        vocabulary.mask(50)
    with pytest.raises(InvalidOption, match="at least one token"):
        ActionTokensOnly(vocabulary, 0, 3, EOS)


@pytest.mark.parametrize("name", ["processor", "vocabulary"])
def test_without_transformers_it_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, f"oat.huggingface.{name}", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'ordered-action-tokenization\[hf\]'"):
        import_module(f"oat.huggingface.{name}")
