"""Fit a tokenizer to chunks: configuration, normaliser, what is learned from chunks at once, training, measures.

`BaseTokenizer.fit` does this with chunks in memory and PyTorch alone, `oat fit` with a data set, resumable and on
several processes (`oat.training.tokenizers`); what they do is the same, in the same functions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from oat.data.chunks import Batch
from oat.data.normalize import Normalizer
from oat.data.stream import Source
from oat.data.transforms import ActionTransform, parse, transform_inputs
from oat.errors import InvalidActions, InvalidOption, unknown_name
from oat.io.config_json import config_to_json
from oat.io.options import change, options_of
from oat.io.training_record import Measures, TrainingRecord
from oat.nn.recipe import TrainConfig
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.checks import check_state, check_steps
from oat.tokenizers.config import TokenizerConfig
from oat.tokenizers.measures import ChunkBatch, distortions, draw_chunks
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Array
from oat.tokenizers.unusual import usual_error
from oat.training.chunk_array import ChunkArray
from oat.training.steps import train_in_memory

MERGE_CHUNKS = 200_000
"""Most chunks that `fit_normalized` is given: byte-pair encoding reads all of them, and learns little from more."""
_MEAN_CHUNKS = 4096  # enough for a mean
_OF_RUNS = ("compile", "validate_every", "workers", "wandb")  # parts of a recipe that mean nothing in memory

Fitted = TypeVar("Fitted", bound=BaseTokenizer)


@dataclass(frozen=True)
class FitOptions:
    """Hold what `BaseTokenizer.fit` was asked for beside hyper-parameters; it explains them."""

    preset: str
    steps: int | None
    minutes: float | None
    seed: int
    config: TokenizerConfig | None
    transform: str | ActionTransform
    normalization: str | Normalizer
    validation: float
    device: str
    progress: bool


@dataclass
class TokenizerTraining:
    """Present a tokenizer that is trained to the training loops."""

    module: BaseTokenizer
    held_out: ChunkBatch

    def identity(self) -> Mapping[str, Any]:
        """Return the tokenizer's kind, sizes and normalisation."""
        module = self.module
        described = {"space": config_to_json(module.space), "model": config_to_json(module.config)}
        return {"tokenizer": module.kind, "normalization": module.training_record.normalization, **described}

    def learning_rates(self) -> Mapping[str, float]:
        """Return no factors: all parameters of a tokenizer learn at the same rate."""
        return {}

    def loss(self, module: nn.Module, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the tokenizer's loss on a batch's chunks in model space."""
        actions, valid, state = transform_inputs(batch, self.module.space.transform, self.module.device)
        step = module(self.module.to_model_space(actions, state), valid, generator)
        return step.loss, {"mse": step.errors.mean()}

    def validate(self, module: nn.Module) -> Measures:
        """Return the held-out error of every prefix; the score is over those that are trained."""
        assert isinstance(module, BaseTokenizer)
        measured = distortions(module, self.held_out)
        errors = _error_of_prefix(module, measured)
        trained = torch.tensor([errors[length] for length in module.trained_prefixes()])
        # The mean of logarithms: in a mean of errors the shortest prefixes would drown all others.
        score = float(trained.log().mean())
        return Measures(score=score, usual_error=usual_error(measured[:, -1]), mse_of_prefix=errors)

    def save(self, module: nn.Module, directory: Path, progress: TrainingRecord) -> None:
        """Write the tokenizer with what is known of its training."""
        assert isinstance(module, BaseTokenizer)
        module.training_record = module.training_record.updated(progress)
        module.save_files(directory)


def choose_config(
    kind: type[BaseTokenizer], preset: str, changes: Mapping[str, Any], config: TokenizerConfig | None = None
) -> tuple[TokenizerConfig, TrainConfig | None]:
    """Return a preset's model, or `config`, and its recipe, with these options changed."""
    presets = kind.config_class.presets()
    if preset not in presets:
        raise unknown_name("preset", preset, presets)
    usual = presets[preset]
    model = usual.model if config is None else config
    if not isinstance(model, kind.config_class):
        raise InvalidOption(
            f"{kind.__name__} is configured by {kind.config_class.__name__}, got {type(model).__name__}"
        )
    # One set of names for both: what the model does not have is the recipe's, and what neither has is a mistake.
    changed, left = change(model, changes)
    recipe, unknown = change(usual.training, left)
    for name in unknown:
        parts = (model,) if recipe is None else (model, recipe)
        raise unknown_name(
            f"option of {kind.__name__}", name, (known for part in parts for known, _ in options_of(part))
        )
    return changed.settled(changes), recipe


def prepare(
    kind: type[Fitted], config: TokenizerConfig, source: Source, space: ActionSpace, normalizer: Normalizer, seed: int
) -> Fitted:
    """Return a tokenizer that knows its range and all that is learned at once; what is trained has initial weights."""
    # Initial weights are a function of the seed, and the caller's own random numbers stay as they were.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokenizer = kind(space, config.for_horizon(space.action_horizon))  # type: ignore[call-arg]
    tokenizer.normalizer = normalizer
    if kind.learns_from_chunks():
        chunks = draw_chunks(source, tokenizer, MERGE_CHUNKS)
        tokenizer.fit_normalized(tokenizer.to_model_space(chunks.actions, chunks.state))
    tokenizer.mean_chunk.copy_(_mean_chunk(tokenizer, draw_chunks(source, tokenizer, _MEAN_CHUNKS)))
    return tokenizer


def _mean_chunk(tokenizer: BaseTokenizer, chunks: ChunkBatch) -> Float[Tensor, "time dim"]:
    """Return the mean of chunks in model space, of each step over the chunks that reach it."""
    valid = chunks.valid[..., None]
    sums = (tokenizer.to_model_space(chunks.actions, chunks.state) * valid).sum(0)
    return sums / valid.sum(0).clamp_min(1)  # a step that none reaches is in the middle of the range


def measure_at_once(tokenizer: BaseTokenizer, held_out: ChunkBatch) -> Measures:
    """Return the held-out measures of a tokenizer that is not trained."""
    measured = distortions(tokenizer, held_out)
    usual = usual_error(measured[:, -1])
    if tokenizer.prefix_decodable:
        return Measures(usual_error=usual, mse_of_prefix=_error_of_prefix(tokenizer, measured))
    tokens = float(held_out.encode(tokenizer).lengths.double().mean())
    return Measures(tokens=tokens, mse=float(measured[:, -1].mean()), usual_error=usual)


def _error_of_prefix(tokenizer: BaseTokenizer, measured: Float[Tensor, "chunks prefixes"]) -> dict[int, float]:
    """Return the mean error of every length that decodes."""
    return dict(zip(tokenizer.prefix_lengths(), measured.mean(0).tolist(), strict=True))


def fit_chunks(
    kind: type[Fitted],
    chunks: Array,
    valid_mask: Array | None,
    states: Array | None,
    how: FitOptions,
    options: Mapping[str, Any],
) -> Fitted:
    """Return a tokenizer of the kind, fitted to chunks in memory as `BaseTokenizer.fit` describes."""
    if how.steps is not None and how.minutes is not None:
        raise InvalidOption("a training ends after steps or after minutes: give one of them")
    if not kind.config_class.trained() and (how.steps, how.minutes) != (None, None):
        raise InvalidOption(f"{kind.__name__} is fitted at once and not trained: leave out steps and minutes")
    # A recipe has at least one step; steps=0 asks for initial weights, and is answered below.
    changes = {**options, **({"steps": how.steps} if how.steps else {})}
    config, recipe = choose_config(kind, how.preset, changes, how.config)
    transform = parse(how.transform) if isinstance(how.transform, str) else how.transform
    everything = check_chunks(chunks, valid_mask, states, transform)
    taught, held_out = _split(everything, how.validation)
    space = _space_of(everything, transform)
    source = ChunkArray(taught, transform.state_key)  # without those held out: the normaliser must not know them
    tokenizer = prepare(kind, config, source, space, _normalizer(source, how, transform), how.seed)
    tokenizer.training_record = TrainingRecord(
        data=f"{len(everything):,} chunks given to {kind.__name__}.fit",
        validation=how.validation,
        seed=how.seed,
        normalization=how.normalization if isinstance(how.normalization, str) else "given",
        command=_call(kind, how, options),
    )
    if recipe is None or how.steps == 0:
        measures = measure_at_once(tokenizer, held_out) if len(held_out) else None
        tokenizer.training_record = replace(tokenizer.training_record, measures=measures)
        return tokenizer.eval()
    return _train(tokenizer, source, held_out, replace(recipe, seed=how.seed), how)


def _train(tokenizer: Fitted, source: ChunkArray, held_out: ChunkBatch, recipe: TrainConfig, how: FitOptions) -> Fitted:
    """Return the tokenizer with the average of the weights along the way, on the CPU."""
    task = TokenizerTraining(tokenizer.to(how.device), held_out)
    updates = train_in_memory(task, source, recipe, how.minutes, how.progress)
    averaged = updates.average.module.cpu().eval()
    assert isinstance(averaged, type(tokenizer))
    taken = replace(recipe, steps=updates.step)  # within minutes, only the clock decided how many
    averaged.training_record = replace(
        averaged.training_record,
        recipe={name: value for name, value in config_to_json(taken).items() if name not in _OF_RUNS},
        step=updates.step,
        measures=task.validate(averaged) if len(held_out) else None,
    )
    return averaged


def check_chunks(
    chunks: Array, valid_mask: Array | None, states: Array | None, transform: ActionTransform
) -> ChunkBatch:
    """Return chunks on the CPU, or raise `InvalidActions` or `InvalidObservation` naming the shape that is wrong."""
    actions = torch.as_tensor(chunks, dtype=torch.float32).cpu()
    if actions.ndim != 3 or 0 in actions.shape:
        raise InvalidActions(
            f"chunks must be (chunks, actions per chunk, numbers per action), got {tuple(actions.shape)}"
        )
    valid = check_steps(actions, None if valid_mask is None else torch.as_tensor(valid_mask).cpu())
    state_dim = None if states is None else torch.as_tensor(states).shape[-1]
    space = ActionSpace(actions.shape[1], actions.shape[2], transform, state_dim)
    state = check_state(states, len(actions), space, torch.device("cpu"))
    transform.output_dim(space.action_dim, state_dim)  # raises where it is undefined, such as without a state
    return ChunkBatch(actions, valid, None if transform.state_key is None else state)


def _space_of(chunks: ChunkBatch, transform: ActionTransform) -> ActionSpace:
    """Return the space of these chunks, whose shapes were checked."""
    state_dim = None if chunks.state is None else chunks.state.shape[1]
    return ActionSpace(chunks.actions.shape[1], chunks.actions.shape[2], transform, state_dim)


def _split(chunks: ChunkBatch, validation: float) -> tuple[ChunkBatch, ChunkBatch]:
    """Return the chunks to learn from and the last ones, which are held out."""
    if not 0 <= validation < 1:
        raise InvalidOption(f"the validation share must be in [0, 1), got {validation}")
    kept = len(chunks) - math.ceil(validation * len(chunks))
    if kept < 1:
        raise InvalidActions(f"at least 2 chunks are needed, one of them to measure the error; got {len(chunks)}")
    return chunks[range(kept)], chunks[range(kept, len(chunks))]


def _normalizer(source: ChunkArray, how: FitOptions, transform: ActionTransform) -> Normalizer:
    """Return the normaliser that was given, or one from the statistics of the chunks to learn from."""
    if isinstance(how.normalization, Normalizer):
        return how.normalization
    return Normalizer.from_statistics(source.statistics(transform), how.normalization)


def _call(kind: type[BaseTokenizer], how: FitOptions, options: Mapping[str, Any]) -> str:
    """Return the call that gives this tokenizer, for its model card."""
    asked = {"steps": how.steps, "minutes": how.minutes, **options}
    words = [f"preset={how.preset!r}", *(f"{name}={value!r}" for name, value in asked.items() if value is not None)]
    return f"{kind.__name__}.fit(chunks, {', '.join(words)}, seed={how.seed})"
