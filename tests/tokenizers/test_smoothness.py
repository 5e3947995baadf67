"""The smoothness term: latents of a chunk and of itself one step later are pulled together, if asked."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import Episodes
from oat.errors import InvalidOption
from oat.io.config_json import config_to_json
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.autoencoder import AutoencoderTokenizer
from oat.tokenizers.config import ObjectiveConfig
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.smoothness import one_step_ahead, roughness
from tests.tokenizers.fitted import HORIZON, fitted_to, smooth_chunks

LEARNED = [kind for kind in TOKENIZERS if TOKENIZERS.config(kind).trained()]
VALID = torch.ones(32, HORIZON, dtype=torch.bool)


def learned(kind: str, smooth: float) -> AutoencoderTokenizer:
    tokenizer = fitted_to(smooth_chunks(100), kind, smooth=smooth)
    assert isinstance(tokenizer, AutoencoderTokenizer)
    return tokenizer


def positions(tokenizer: AutoencoderTokenizer, chunks: Tensor, valid: Tensor = VALID) -> Tensor:
    return tokenizer.quantizer.position(tokenizer.encoder(chunks, valid))


def test_a_chunk_one_step_later() -> None:
    later, valid = one_step_ahead(torch.arange(4.0).reshape(1, 4, 1), torch.ones(1, 4, dtype=torch.bool))
    assert later.flatten().tolist() == [1, 2, 3, 3]
    assert valid.all()
    single = torch.ones(2, 1, 1), torch.ones(2, 1, dtype=torch.bool)
    assert all(torch.equal(one, other) for one, other in zip(single, one_step_ahead(*single), strict=True))


def test_where_an_episode_ends_it_is_the_true_neighbour() -> None:
    windows = Windows(Episodes.from_arrays(np.arange(6, dtype=np.float32)[:, None], [6]), WindowConfig(4, 1))
    batch = windows[np.arange(2, 6)]  # the whole chunk, then those that reach past the end
    later, valid = one_step_ahead(torch.from_numpy(batch.actions), torch.from_numpy(batch.valid_mask))
    truth = windows[np.arange(3, 6)]
    assert later[:3].numpy().tolist() == truth.actions.tolist()
    assert valid[1:3].numpy().tolist() == truth.valid_mask[1:].tolist()
    assert valid[3].tolist() == [True, False, False, False]  # the last step has none, and stays as it is


@pytest.mark.parametrize("kind", LEARNED)
def test_the_term_is_a_share_of_the_error(kind: str) -> None:
    chunks = smooth_chunks(32, seed=1)
    plain, smooth = (learned(kind, weight) for weight in (0.0, 0.5))
    without, with_it = (each(chunks, VALID, torch.Generator().manual_seed(0)) for each in (plain, smooth))
    rough = roughness(positions(plain, chunks), positions(plain, *one_step_ahead(chunks, VALID)))
    assert rough > 0
    torch.testing.assert_close(with_it.loss, without.loss * (1 + 0.5 * rough))
    assert torch.equal(with_it.errors, without.errors)


@pytest.mark.parametrize("kind", LEARNED)
def test_it_moves_the_encoder_alone(kind: str) -> None:
    chunks = smooth_chunks(32, seed=1)
    gradients = []
    for weight in (0.0, 1.0):
        tokenizer = learned(kind, weight)
        torch.autograd.backward(tokenizer(chunks, VALID, torch.Generator().manual_seed(0)).loss)
        gradients.append({name: p.grad for name, p in tokenizer.named_parameters() if p.grad is not None})
    without, with_it = gradients
    changed = {name for name, gradient in with_it.items() if not torch.equal(gradient, without[name])}
    assert changed
    assert all(name.startswith("encoder.") for name in changed)


@pytest.mark.parametrize("kind", LEARNED)
def test_without_it_a_step_is_as_it_was(kind: str) -> None:
    """By default the encoder runs once, and the random numbers that follow stay the same."""
    calls: dict[float, int] = {}
    states = []
    for weight in (ObjectiveConfig().smooth, 1.0):
        tokenizer = learned(kind, weight)
        calls[weight] = 0

        def count(*_: object, weight: float = weight) -> None:
            calls[weight] += 1

        tokenizer.encoder.register_forward_hook(count)
        generator = torch.Generator().manual_seed(0)
        tokenizer(smooth_chunks(32), VALID, generator)
        states.append(generator.get_state())
    assert calls == {0.0: 1, 1.0: 2}
    assert torch.equal(*states)
    assert all(preset.model.objective.smooth == 0 for preset in TOKENIZERS.config(kind).presets().values())


def test_training_with_it_makes_latents_smoother() -> None:
    chunks = smooth_chunks(64, seed=2)
    valid = torch.ones(64, HORIZON, dtype=torch.bool)
    rough = []
    for weight in (0.0, 3.0):
        tokenizer = learned("oat", weight)
        optimizer = torch.optim.Adam(tokenizer.parameters(), 3e-3)
        for step in range(30):
            optimizer.zero_grad()
            torch.autograd.backward(tokenizer(chunks, valid, torch.Generator().manual_seed(step)).loss)
            optimizer.step()
        here = positions(tokenizer, chunks, valid)
        # Against the differences between chunks: constant latents would be smooth, too.
        between = roughness(here, here.roll(1, 0))
        within = roughness(here, positions(tokenizer, *one_step_ahead(chunks, valid)))
        rough.append(float((within / between).detach()))
    assert rough[1] < 0.8 * rough[0], rough


def test_checkpoints_say_it_where_it_is_used(tmp_path: Path) -> None:
    """Older versions, which do not know the field, read those that do not use it."""
    assert "smooth" not in config_to_json(ObjectiveConfig())
    assert config_to_json(ObjectiveConfig(smooth=0.5))["smooth"] == 0.5
    learned("oat", 0.5).save(tmp_path / "smooth")
    assert load_tokenizer(tmp_path / "smooth").config.objective.smooth == 0.5


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"spread and smooth must be ≥ 0, got 0\.0 and -1"):
        ObjectiveConfig(smooth=-1)
