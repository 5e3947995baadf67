"""Fitting a tokenizer to demonstrations: statistics first, then merges (FAST) or training (QueST, OAT)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from oat.data import transforms
from oat.data.chunks import Batch, WindowConfig, Windows
from oat.data.episodes import Episodes, open_dataset
from oat.data.normalize import Normalizer, action_statistics
from oat.data.splits import split_episodes
from oat.data.transforms import ActionTransform, transform_inputs
from oat.errors import DatasetExists, unknown_name
from oat.io.checkpoints import checkpoint_kind, config_to_json, find_checkpoint, load_checkpoint
from oat.io.training_record import Measures, TrainingRecord
from oat.nn.transformer import Width
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.autoencoder import AutoencoderConfig, AutoencoderTokenizer, ObjectiveConfig
from oat.tokenizers.bin import BinConfig, BinTokenizer
from oat.tokenizers.decoder import DecoderConfig
from oat.tokenizers.evaluation import Chunks, distortions, draw_chunks, prefix_lengths
from oat.tokenizers.fast import FASTConfig, FASTTokenizer
from oat.tokenizers.nested_dropout import keep_lengths
from oat.tokenizers.oat import OATConfig
from oat.tokenizers.options import check_options
from oat.tokenizers.quest import DOWNSAMPLING, QueSTConfig
from oat.tokenizers.tokenizer import ActionSpace, ActionTokenizer
from oat.training.command_line import begin_record
from oat.training.config import FitConfig, TokenizerOptions, TrainConfig, override
from oat.training.loop import train

_VALIDATION_CHUNKS = 1024
_MERGE_CHUNKS = 200_000  # what BPE learns from more is negligible, and it reads them all


@dataclass(frozen=True)
class Preset:
    """A size of learned tokenizer and a recipe to train it."""

    model: AutoencoderConfig
    training: TrainConfig


_SMALL = AutoencoderConfig(
    grid="symmetric",
    width=Width(128, 32),
    decoder=DecoderConfig(layers=2),
    objective=ObjectiveConfig(prefixes=2, balance=0.25, spread=0.02),  # why: results/tokenizers.md
)

PRESETS: dict[str, Preset] = {
    "tiny": Preset(
        replace(
            _SMALL,
            grid="tanh",
            width=Width(64, 32),
            encoder_layers=1,
            decoder=DecoderConfig(layers=1),
            objective=ObjectiveConfig(prefixes=4, balance=0.5),
        ),
        TrainConfig(steps=500, batch_size=64, learning_rate=4e-3, validate_every=250),
    ),
    "cpu": Preset(_SMALL, TrainConfig(steps=4000, batch_size=32, learning_rate=3e-3, optimizer="muon")),
    "paper": Preset(
        AutoencoderConfig(),
        TrainConfig(
            steps=200_000, batch_size=256, learning_rate=5e-5, schedule="constant", ema_decay=0.9999, precision="bf16"
        ),
    ),
}


def split_windows(episodes: Episodes, space: ActionSpace, validation: float, seed: int) -> tuple[Windows, Windows]:
    """Training and held-out windows, with the state where the space's transform refers to it."""
    key = space.transform.state_key
    window = WindowConfig(space.action_horizon, 1, () if key is None else (key,))
    train_ids, held_out = split_episodes(episodes, validation, seed)
    return Windows(episodes.select(train_ids), window), Windows(episodes.select(held_out), window)


def fit_analytic(tokenizer: ActionTokenizer, windows: Windows) -> None:
    """What Bin and FAST need beside the statistics."""
    if isinstance(tokenizer, FASTTokenizer):
        chunks = draw_chunks(windows, tokenizer, _MERGE_CHUNKS)
        tokenizer.fit(tokenizer.to_model_space(chunks.actions, chunks.state))


def make_tokenizer(
    kind: str, space: ActionSpace, preset: str, options: TokenizerOptions | None = None
) -> ActionTokenizer:
    """An untrained tokenizer of a kind and size."""
    if kind not in TOKENIZERS:
        raise unknown_name("tokenizer", kind, TOKENIZERS)
    options = options or TokenizerOptions()
    check_options(kind, options)
    model = _with_options(PRESETS[preset].model, options)
    fields = {name: getattr(model, name) for name in model.__dataclass_fields__}
    if kind == "quest":
        fields["latent_horizon"] = space.action_horizon // DOWNSAMPLING
        fields["objective"] = _without_prefixes(model.objective)
        return TOKENIZERS[kind](space, QueSTConfig(**fields))  # type: ignore[call-arg]
    if kind == "oat":
        config = override(OATConfig(**fields), register_attention=options.register_attention)
        return TOKENIZERS[kind](space, config)  # type: ignore[call-arg]
    if kind == "fast":
        return FASTTokenizer(space, override(FASTConfig(), scale=options.scale, vocab_size=options.vocab_size))
    return BinTokenizer(space, override(BinConfig(), bins=options.bins))


def _with_options(model: AutoencoderConfig, options: TokenizerOptions) -> AutoencoderConfig:
    objective = override(
        model.objective,
        keep=options.keep,
        prefixes=options.prefixes,
        balance=options.balance,
        spread=options.spread,
    )
    return override(
        model,
        latent_horizon=options.latent_horizon,
        levels=options.levels,
        grid=options.grid,
        width=override(model.width, dim=options.dim),
        encoder_layers=options.encoder_layers,
        decoder=override(
            model.decoder, kind=options.decoder, layers=options.decoder_layers, causal=options.causal_decoder
        ),
        objective=_without_prefixes(objective) if objective.keep == "full" else objective,
    )


def _without_prefixes(objective: ObjectiveConfig) -> ObjectiveConfig:
    """The same for whole sequences: several prefixes of a chunk would be equal."""
    return replace(objective, keep="full", prefixes=1, balance=0.0)


@dataclass
class TokenizerTraining:
    """A learned tokenizer as the training loop sees it."""

    module: AutoencoderTokenizer
    held_out: Chunks

    def identity(self) -> Mapping[str, Any]:
        module = self.module
        described = {"space": config_to_json(module.space), "model": config_to_json(module.config)}
        return {"tokenizer": module.kind, "normalization": module.training_record.normalization, **described}

    def learning_rates(self) -> Mapping[str, float]:
        return {}

    def loss(self, module: nn.Module, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Mapping[str, Tensor]]:
        actions, valid, state = transform_inputs(batch, self.module.space.transform, self.module.device)
        step = module(self.module.to_model_space(actions, state), valid, generator)
        return step.loss, {"mse": step.errors.mean()}

    def validate(self, module: nn.Module) -> Measures:
        """The score is over the prefixes that are trained: of OAT×, only the whole sequence is."""
        assert isinstance(module, AutoencoderTokenizer)
        errors, lengths = distortions(module, self.held_out).mean(0).cpu(), torch.tensor(prefix_lengths(module))
        trained = keep_lengths(module.config.objective.keep).probabilities(module.max_tokens)[lengths - 1] > 0
        return Measures(
            score=float(errors[trained].log().mean()),
            mse_of_prefix=dict(zip(lengths.tolist(), errors.tolist(), strict=True)),
        )

    def save(self, module: nn.Module, directory: Path, progress: TrainingRecord) -> None:
        assert isinstance(module, AutoencoderTokenizer)
        module.training_record = module.training_record.updated(progress)
        module.save_files(directory)


def load_tokenizer(path: str | Path) -> ActionTokenizer:
    """A tokenizer of any kind from a checkpoint, or the best one of a run."""
    described, _ = load_checkpoint(find_checkpoint(path), TOKENIZERS)
    return TOKENIZERS[described["kind"]].load(path)


def action_space(episodes: Episodes, action_horizon: int, transform: ActionTransform) -> ActionSpace:
    """The chunks of a data set."""
    key = transform.state_key
    state_dim = episodes.observation(key).shape[1] if key is not None and key in episodes.observations else None
    return ActionSpace(action_horizon, episodes.action_dim, transform, state_dim)


def fit_tokenizer(config: FitConfig) -> None:
    """Fit and save; learned tokenizers leave a run directory, the others a checkpoint."""
    check_options(config.tokenizer, config.recipe)
    episodes = open_dataset(config.data)
    space = action_space(episodes, config.action_horizon, transforms.parse(config.transform))
    windows, held_out = split_windows(episodes, space, config.validation, config.seed)
    torch.manual_seed(config.seed)
    tokenizer = make_tokenizer(config.tokenizer, space, config.preset, config.model)
    tokenizer.normalizer = Normalizer.from_statistics(action_statistics(windows, space.transform), config.normalization)
    tokenizer.training_record = replace(begin_record("fit", config, episodes), normalization=config.normalization)
    chunks = draw_chunks(held_out, tokenizer, _VALIDATION_CHUNKS)
    if isinstance(tokenizer, AutoencoderTokenizer):
        recipe = config.recipe.apply(replace(PRESETS[config.preset].training, seed=config.seed))
        train(TokenizerTraining(tokenizer, chunks), windows, recipe, config.out, config.resume)
        return
    if checkpoint_kind(config.out) is not None and not config.resume:
        raise DatasetExists(f"{config.out} holds a tokenizer; --resume fits it anew, another --out keeps it")
    fit_analytic(tokenizer, windows)
    lengths, errors = chunks.encode(tokenizer).lengths, distortions(tokenizer, chunks)
    measures = Measures(tokens=float(lengths.double().mean()), mse=float(errors.mean()))
    tokenizer.training_record = replace(tokenizer.training_record, measures=measures)
    tokenizer.save(config.out)
