"""An option that would change nothing is refused, and every option changes something for somebody."""

from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import pytest

from oat.errors import InvalidOption
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.options import check_options
from oat.tokenizers.tokenizer import ActionSpace
from oat.training.config import RecipeOptions, TokenizerOptions
from oat.training.tokenizers import make_tokenizer

VALUES: dict[str, Any] = {
    "latent_horizon": 4,
    "levels": (4, 4),
    "grid": "symmetric",
    "dim": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "decoder": "flow",
    "causal_decoder": False,
    "keep": "powers_of_two",
    "prefixes": 2,
    "balance": 0.25,
    "spread": 0.5,
    "register_attention": "full",
    "scale": 3.0,
    "vocab_size": 64,
    "bins": 8,
}
"""None of them is what the tiny preset has."""


@pytest.mark.parametrize("name", [field.name for field in fields(TokenizerOptions)])
def test_an_option_is_refused_where_it_would_change_nothing(name: str) -> None:
    options = replace(TokenizerOptions(), **{name: VALUES[name]})
    users = set()
    for kind in TOKENIZERS:
        with suppress(InvalidOption):
            changed = make_tokenizer(kind, ActionSpace(8, 2), "tiny", options)
            users.add(kind)
            assert changed.config != make_tokenizer(kind, ActionSpace(8, 2), "tiny").config
    assert users


def test_the_refusal_names_option_kind_and_users() -> None:
    with pytest.raises(InvalidOption, match="--latent-horizon means nothing to quest, it is for oat"):
        make_tokenizer("quest", ActionSpace(32, 2), "tiny", TokenizerOptions(latent_horizon=16))


@pytest.mark.parametrize("name", ["prefixes", "balance"])
def test_without_dropout_there_are_no_prefixes_to_choose(name: str) -> None:
    options = replace(TokenizerOptions(keep="full"), **{name: VALUES[name]})
    with pytest.raises(InvalidOption, match=f"--{name} means nothing to --keep full, it is for nested dropout"):
        make_tokenizer("oat", ActionSpace(8, 2), "tiny", options)


@pytest.mark.parametrize("kind", ["bin", "fast"])
def test_what_is_not_trained_has_no_recipe(kind: str) -> None:
    check_options(kind, RecipeOptions())
    with pytest.raises(InvalidOption, match=f"--steps means nothing to {kind}, it is for quest and oat"):
        check_options(kind, RecipeOptions(steps=5))
