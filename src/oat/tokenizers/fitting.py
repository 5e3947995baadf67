"""Fitting a tokenizer to demonstrations: statistics first, then merges (FAST) or training (QueST, OAT)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from oat.checkpoint import CONFIG_FILE, load_checkpoint
from oat.data.chunks import Batch, WindowConfig, Windows, split_episodes
from oat.data.episodes import Episodes, open_dataset
from oat.data.normalize import Normalizer, action_statistics
from oat.errors import unknown_name
from oat.nn.transformer import Width
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.autoencoder import AutoencoderConfig, AutoencoderTokenizer, Keep, ObjectiveConfig
from oat.tokenizers.decoder import DecoderConfig
from oat.tokenizers.evaluation import Chunks, distortions, draw_chunks, prefix_lengths
from oat.tokenizers.fast import FASTTokenizer
from oat.tokenizers.oat import OATConfig
from oat.tokenizers.quest import DOWNSAMPLING, QueSTConfig
from oat.tokenizers.tokenizer import ActionSpace, ActionTokenizer
from oat.training.config import FitConfig, TrainConfig
from oat.training.loop import train

_VALIDATION_CHUNKS = 1024


@dataclass(frozen=True)
class Preset:
    """A size of learned tokenizer and a recipe to train it."""

    model: AutoencoderConfig
    training: TrainConfig


_SMALL = AutoencoderConfig(width=Width(128, 32), decoder=DecoderConfig(layers=2))

PRESETS: dict[str, Preset] = {
    "tiny": Preset(
        replace(
            _SMALL,
            width=Width(64, 32),
            encoder_layers=1,
            decoder=DecoderConfig(layers=1),
            objective=ObjectiveConfig(prefixes=4, balance=0.5),
        ),
        TrainConfig(steps=500, batch_size=64, learning_rate=4e-3, validate_every=250),
    ),
    "cpu": Preset(_SMALL, TrainConfig(steps=6000, batch_size=64, learning_rate=2e-3)),
    "paper": Preset(
        AutoencoderConfig(),
        TrainConfig(
            steps=200_000, batch_size=256, learning_rate=5e-5, schedule="constant", ema_decay=0.9999, precision="bf16"
        ),
    ),
}


def split_windows(episodes: Episodes, action_horizon: int, validation: float, seed: int) -> tuple[Windows, Windows]:
    """Training and held-out windows."""
    window = WindowConfig(action_horizon, 1)
    train_ids, held_out = split_episodes(episodes, validation, seed)
    return Windows(episodes.select(train_ids), window), Windows(episodes.select(held_out), window)


def fit_analytic(tokenizer: ActionTokenizer, windows: Windows) -> None:
    """What Bin and FAST need beside the statistics."""
    if isinstance(tokenizer, FASTTokenizer):
        tokenizer.fit(tokenizer.to_model_space(torch.from_numpy(windows[np.arange(len(windows))].actions)))


def make_tokenizer(kind: str, space: ActionSpace, preset: str, keep: Keep = "uniform") -> ActionTokenizer:
    """An untrained tokenizer of a kind and size."""
    if kind not in TOKENIZERS:
        raise unknown_name("tokenizer", kind, TOKENIZERS)
    model = PRESETS[preset].model
    fields = {name: getattr(model, name) for name in model.__dataclass_fields__}
    if kind == "quest":
        fields |= {"latent_horizon": space.action_horizon // DOWNSAMPLING, "objective": ObjectiveConfig(keep="full")}
        return TOKENIZERS[kind](space, QueSTConfig(**fields))  # type: ignore[call-arg]
    if kind == "oat":
        fields["objective"] = replace(model.objective, keep=keep)
        return TOKENIZERS[kind](space, OATConfig(**fields))  # type: ignore[call-arg]
    return TOKENIZERS[kind](space)


@dataclass
class TokenizerTraining:
    """A learned tokenizer as the training loop sees it."""

    module: AutoencoderTokenizer
    held_out: Chunks

    def loss(self, module: nn.Module, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Mapping[str, Tensor]]:
        device = self.module.normalizer.center.device
        actions = self.module.to_model_space(torch.from_numpy(batch.actions).to(device))
        step = module(actions, torch.from_numpy(batch.valid_mask).to(device), generator)
        return step.loss, {"mse": step.errors.mean()}

    def validate(self, module: nn.Module) -> Mapping[str, float]:
        assert isinstance(module, AutoencoderTokenizer)
        errors = distortions(module, self.held_out).mean(0)
        named = {f"mse_{k}": float(e) for k, e in zip(prefix_lengths(module), errors, strict=True)}
        return {"score": float(errors.log().mean()), **named}

    def save(self, module: nn.Module, directory: Path) -> None:
        assert isinstance(module, AutoencoderTokenizer)
        module.save_files(directory)


def load_tokenizer(path: Path) -> ActionTokenizer:
    """A tokenizer of any kind from a checkpoint, or the best one of a run."""
    path = path.expanduser()
    folder = path if (path / CONFIG_FILE).exists() or not (path / "best").exists() else path / "best"
    described, _ = load_checkpoint(folder, TOKENIZERS)
    return TOKENIZERS[described["kind"]].load(folder)


def fit_tokenizer(config: FitConfig) -> None:
    """Fit and save; learned tokenizers leave a run directory, the others a checkpoint."""
    episodes = open_dataset(config.data)
    windows, held_out = split_windows(episodes, config.action_horizon, config.validation, config.seed)
    torch.manual_seed(config.seed)
    space = ActionSpace(config.action_horizon, episodes.action_dim)
    tokenizer = make_tokenizer(config.tokenizer, space, config.preset)
    tokenizer.normalizer = Normalizer.from_statistics(action_statistics(windows, space.transform), config.normalization)
    tokenizer.fitted_to = {"data": str(config.data), "validation": config.validation, "seed": config.seed}
    if isinstance(tokenizer, AutoencoderTokenizer):
        recipe = replace(PRESETS[config.preset].training, seed=config.seed)
        recipe = replace(recipe, steps=config.steps) if config.steps else recipe
        task = TokenizerTraining(tokenizer, draw_chunks(held_out, tokenizer, _VALIDATION_CHUNKS))
        train(task, windows, recipe, config.out, config.resume)
        return
    fit_analytic(tokenizer, windows)
    tokenizer.save(config.out)
