"""Every hyper-parameter is declared once: as an option of those kinds for which it changes something."""

from pathlib import Path
from typing import Any

import pytest

from oat.errors import InvalidOption, UnknownName
from oat.io.options import options_of
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.config import PRESETS
from oat.tokenizers.space import ActionSpace
from oat.training.config import FitConfig, options_of_kind
from tests.tokenizers.fitted import untrained

VALUES: dict[str, Any] = {
    "latent_horizon": 4,
    "levels": (4, 4),
    "grid": "symmetric",
    "dim": 32,
    "head_dim": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "decoder": "flow",
    "causal_decoder": False,
    "flow_steps": 3,
    "keep": "powers_of_two",
    "prefixes": 2,
    "balance": 0.25,
    "spread": 0.5,
    "smooth": 0.5,
    "register_attention": "full",
    "kernel": 3,
    "scale": 3.0,
    "vocab_size": 64,
    "bins": 8,
    "iterations": 3,
}
"""None of them is what the tiny preset has."""

DATA, OUT = Path("data"), Path("out")


def model_options(kind: str) -> set[str]:
    return {name for name, _ in options_of(TOKENIZERS.config(kind).presets()["tiny"].model)}


@pytest.mark.parametrize("name", VALUES)
def test_an_option_is_refused_where_it_would_change_nothing(name: str) -> None:
    users = [kind for kind in TOKENIZERS if name in model_options(kind)]
    assert users
    for kind in TOKENIZERS:
        if kind in users:
            changed = untrained(kind, ActionSpace(8, 2), **{name: VALUES[name]})
            assert changed.config != untrained(kind, ActionSpace(8, 2)).config
        else:
            with pytest.raises(UnknownName, match=f"unknown option of {TOKENIZERS[kind].__name__} '{name}'"):
                untrained(kind, ActionSpace(8, 2), **{name: VALUES[name]})


def test_no_option_is_forgotten() -> None:
    assert {name for kind in TOKENIZERS for name in model_options(kind)} == VALUES.keys()


def test_the_refusal_names_option_kind_and_users() -> None:
    with pytest.raises(InvalidOption, match="--latent-horizon means nothing to quest, it is for oat and rvq"):
        FitConfig.of(DATA, OUT, "quest", latent_horizon=16)
    with pytest.raises(InvalidOption, match="--steps means nothing to fast, it is for quest and oat"):
        FitConfig.of(DATA, OUT, "fast", steps=5)
    with pytest.raises(InvalidOption, match="--stepz means nothing to oat, nor to any other tokenizer"):
        FitConfig.of(DATA, OUT, "oat", stepz=5)
    with pytest.raises(UnknownName, match="unknown preset 'small'"):
        FitConfig.of(DATA, OUT, "oat", "small")


@pytest.mark.parametrize("name", ["prefixes", "balance"])
def test_without_dropout_there_are_no_prefixes_to_choose(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"--{name} means nothing to --keep full, it is for nested dropout"):
        untrained("oat", ActionSpace(8, 2), keep="full", **{name: VALUES[name]})
    objective = untrained("oat", ActionSpace(8, 2), keep="full").config.objective
    assert (objective.prefixes, objective.balance) == (1, 0.0)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_kind_has_every_preset(kind: str) -> None:
    presets = TOKENIZERS.config(kind).presets()
    assert tuple(presets) == PRESETS
    trained = TOKENIZERS.config(kind).trained()
    assert all((preset.training is not None) == trained for preset in presets.values())
    assert ("steps" in options_of_kind(kind)) == trained
    for preset in PRESETS:
        assert FitConfig.of(DATA, OUT, kind, preset).model == presets[preset].model


def test_quest_has_a_token_for_every_four_actions() -> None:
    assert untrained("quest", ActionSpace(64, 2)).max_tokens == 16
