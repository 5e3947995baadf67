"""Training a policy on demonstrations, with open-loop measures on held-out episodes as it goes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from oat.data import transforms
from oat.data.chunks import Batch, WindowConfig, Windows
from oat.data.episodes import Episodes, open_dataset
from oat.data.normalize import Normalizer, action_statistics
from oat.data.provenance import read_demonstrator
from oat.data.shuffle import Permutation, derive_key
from oat.data.splits import split_episodes
from oat.data.transforms import transform_inputs
from oat.errors import InvalidOption
from oat.interfaces import Observation
from oat.io.training_record import Measures, TrainingRecord
from oat.nn.recipe import TrainConfig
from oat.nn.width import Width
from oat.policies.autoregressive import AutoregressivePolicy
from oat.policies.context import Values, VisionConfig, describe_context
from oat.policies.decoding import Decoding, Noise, TokenDecoding
from oat.policies.diffusion import DiffusionPolicy
from oat.policies.policy import Policy, PolicyConfig
from oat.policies.predictor import Chunk
from oat.tokenizers.base import ActionTokenizer
from oat.tokenizers.decoder import masked_error
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.tokens import Tokens
from oat.training.config import POLICY_RECIPES, TrainPolicyConfig
from oat.training.loop import train
from oat.training.record import begin_record
from oat.training.token_cache import TokenCache, cache_tokens, encode_batch, tokenizer_fingerprint
from oat.training.tokenizers import action_space

_VALIDATION_WINDOWS = 512
_GENERATED_WINDOWS = 128  # of which actions are generated; Bin takes hundreds of steps for each
_BLOCK = 64  # windows that are evaluated at a time: all their images at once may not fit
_SHOWN_POSITIONS = 8
_MARGIN = 1.25  # a generated FAST sequence may be this much longer than the longest that was taught


@dataclass(frozen=True)
class Preset:
    """A size of policy and a recipe to train it."""

    model: PolicyConfig
    training: TrainConfig


PRESETS: dict[str, Preset] = {
    "tiny": Preset(PolicyConfig(Width(64, 32), layers=2), POLICY_RECIPES["tiny"]),
    "cpu": Preset(PolicyConfig(Width(128, 32), layers=4), POLICY_RECIPES["cpu"]),
    "paper": Preset(PolicyConfig(), POLICY_RECIPES["paper"]),
}


def observation_of(windows: Windows, batch: Batch) -> Observation:
    """A batch's observations as a policy takes them."""
    return Observation(batch.observations, tuple(windows.tasks[number] for number in batch.task_ids))


def open_loop_errors(
    policy: Policy, windows: Windows, batches: Iterable[Batch], decoding: Decoding
) -> Float[Tensor, "chunks windows"]:
    """Errors in model space of every chunk that `stream` gives; NaN where it did not decode."""
    blocks = []
    for batch in batches:
        noise = Noise.of(batch.windows.tolist(), [0] * len(batch))
        chunks = policy.stream(observation_of(windows, batch), decoding, noise)
        blocks.append(torch.stack([_errors(policy, chunk, batch) for chunk in chunks]))
    return torch.cat(blocks, dim=1)


def _errors(policy: Policy, chunk: Chunk, batch: Batch) -> Float[Tensor, " batch"]:
    actions, valid, state = transform_inputs(batch, policy.space.transform, chunk.actions.device)
    target, decided = policy.to_model_space(actions, state), policy.to_model_space(chunk.actions, state)
    return masked_error(decided, target, valid).where(chunk.valid, torch.nan)


@dataclass
class _PolicyTraining:
    """What both kinds of policy need."""

    windows: Windows
    held_out: Windows
    vision_learning_rate: float

    def _identity_of(self, policy: Policy) -> dict[str, Any]:
        described = {name: value for name, value in policy.describe().items() if name != "trained_on"}
        normalization = policy.training_record.normalization
        learning = {"vision_learning_rate": self.vision_learning_rate, "normalization": normalization}
        return {"policy": policy.kind, **learning, **described}

    def __post_init__(self) -> None:
        numbers = np.arange(len(self.held_out))
        order = Permutation(len(numbers), derive_key(0))(numbers)
        self._validation = order[:_VALIDATION_WINDOWS]

    def learning_rates(self) -> Mapping[str, float]:
        return {"context.vision.": self.vision_learning_rate}

    def save(self, module: nn.Module, directory: Path, progress: TrainingRecord) -> None:
        assert isinstance(module, Policy)
        module.training_record = module.training_record.updated(progress)
        module.save_files(directory)

    def _inputs(self, policy: Policy, batch: Batch) -> tuple[Values, Tensor]:
        device = policy.context.positions.device
        values = {key: torch.from_numpy(batch.observations[key]).to(device) for key in policy.context.config.keys}
        return values, torch.from_numpy(batch.task_ids).to(device)

    def _blocks(self, count: int) -> Iterator[Batch]:
        """The first held-out windows, a few at a time."""
        chosen = self._validation[:count]
        return (self.held_out[chosen[first : first + _BLOCK]] for first in range(0, len(chosen), _BLOCK))

    def _open_loop(self, policy: Policy, decoding: Decoding) -> Float[Tensor, "chunks windows"]:
        return open_loop_errors(policy, self.held_out, self._blocks(_GENERATED_WINDOWS), decoding)


@dataclass
class AutoregressiveTraining(_PolicyTraining):
    """Teacher forcing on tokens that were computed once."""

    module: AutoregressivePolicy
    taught: TokenCache | None
    """None for Bin, whose tokens are cheaper to compute than to store."""

    def identity(self) -> Mapping[str, Any]:
        return {
            **self._identity_of(self.module),
            "tokenizer fingerprint": tokenizer_fingerprint(self.module.tokenizer),
        }

    def loss(self, module: nn.Module, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Mapping[str, Tensor]]:
        values, tasks = self._inputs(self.module, batch)
        nll, counts, _ = module(values, tasks, self._tokens(batch).to(tasks.device), generator)
        per_position = (nll.detach().sum(0) / counts.sum(0).clamp_min(1))[:_SHOWN_POSITIONS]
        shown = {f"nll_{place}": value for place, value in enumerate(per_position, start=1)}
        return nll.sum() / _mean_over_processes(counts.sum()), shown

    def _tokens(self, batch: Batch) -> Tokens:
        if self.taught is not None:
            return self.taught[batch.windows]
        return encode_batch(self.module.tokenizer, batch)

    @torch.no_grad()
    def validate(self, module: nn.Module) -> Measures:
        assert isinstance(module, AutoregressivePolicy)
        sums, chunks = torch.zeros(3, module.length), 0
        for batch in self._blocks(_VALIDATION_WINDOWS):
            tokens = encode_batch(module.tokenizer, batch)
            fitting = torch.nonzero(tokens.lengths <= module.longest).squeeze(-1)
            if len(fitting) == 0:
                continue
            values, tasks = self._inputs(module, batch)
            nll, counts, likely = module({k: v[fitting] for k, v in values.items()}, tasks[fitting], tokens[fitting])
            right = (likely == module.targets(tokens[fitting])[0]) * counts
            sums[:, : nll.shape[1]] += torch.stack([nll.sum(0), right.sum(0), counts.sum(0)]).cpu()
            chunks += len(fitting)
        nll, right, counts = sums
        places = torch.nonzero(counts)[:_SHOWN_POSITIONS, 0].tolist()
        taught = Measures(
            score=float(nll.sum() / counts.sum()),
            nll_of_chunk=float(nll.sum()) / max(chunks, 1),
            nll_of_token={place + 1: float(nll[place] / counts[place]) for place in places},
            accuracy_of_token={place + 1: float(right[place] / counts[place]) for place in places},
        )
        return self._with_generated(taught, module)

    def _with_generated(self, taught: Measures, policy: AutoregressivePolicy) -> Measures:
        """Return the measures with the errors of chunks that the policy generates itself."""
        errors = self._open_loop(policy, TokenDecoding(greedy=True))
        if policy.tokenizer.prefix_decodable:
            return replace(taught, mse_of_prefix=dict(enumerate(errors.mean(1).tolist(), start=1)))
        undecodable = errors[-1].isnan()
        return replace(
            taught,
            undecodable=float(undecodable.float().mean()),
            mse=None if bool(undecodable.all()) else float(errors[-1].nanmean()),
        )


@dataclass
class DiffusionTraining(_PolicyTraining):
    """Predicting noise."""

    module: DiffusionPolicy

    def identity(self) -> Mapping[str, Any]:
        return self._identity_of(self.module)

    def loss(self, module: nn.Module, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Mapping[str, Tensor]]:
        values, tasks = self._inputs(self.module, batch)
        actions, valid, state = transform_inputs(batch, self.module.space.transform, tasks.device)
        return module(values, tasks, self.module.to_model_space(actions, state), valid, generator).mean(), {}

    @torch.no_grad()
    def validate(self, module: nn.Module) -> Measures:
        assert isinstance(module, DiffusionPolicy)
        mse = float(self._open_loop(module, module.default_decoding)[-1].mean())
        return Measures(score=mse, mse=mse)


def _mean_over_processes(count: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """The processes' gradients are averaged: their losses must be divided by the same number."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return count
    total = count.clone()
    torch.distributed.all_reduce(total)
    return total / torch.distributed.get_world_size()


def train_policy(config: TrainPolicyConfig) -> None:
    """Train and save; `out/best` is the checkpoint to use."""
    episodes = open_dataset(config.data)
    preset = PRESETS[config.preset]
    tokenizer = _find_tokenizer(config, episodes)
    transform = transforms.parse(config.transform) if tokenizer is None else tokenizer.space.transform
    horizon = config.action_horizon if tokenizer is None else tokenizer.action_horizon
    vision = VisionConfig(config.vision_backbone, config.freeze_vision)
    context = describe_context(episodes, config.observe, config.obs_horizon, vision, config.text_encoder)
    extra = () if transform.state_key in (None, *config.observe) else (str(transform.state_key),)
    window = WindowConfig(horizon, config.obs_horizon, (*config.observe, *extra))
    train_ids, held_out_ids = split_episodes(episodes, config.validation, config.seed)
    windows, held_out = (Windows(episodes.select(ids), window) for ids in (train_ids, held_out_ids))
    torch.manual_seed(config.seed)
    common = (windows, held_out, 1.0 if config.vision_backbone is None else config.vision_learning_rate)
    policy: Policy
    task: AutoregressiveTraining | DiffusionTraining
    if tokenizer is not None:
        taught = cache_tokens(tokenizer, windows) if tokenizer.caches_tokens else None
        longest = None
        if not tokenizer.total and taught is not None:
            longest = min(tokenizer.max_tokens, round(_MARGIN * taught.longest))
        policy = AutoregressivePolicy(context, tokenizer, preset.model, longest)
        task = AutoregressiveTraining(*common, policy, taught)
    else:
        policy = DiffusionPolicy(context, action_space(episodes, horizon, transform), preset.model)
        statistics = action_statistics(windows, transform)
        policy.normalizer = Normalizer.from_statistics(statistics, config.normalization)
        task = DiffusionTraining(*common, policy)
    policy.context.fit(windows.episodes)
    normalization = config.normalization if tokenizer is None else tokenizer.training_record.normalization
    policy.training_record = replace(
        begin_record("train", config, episodes),
        normalization=normalization,
        demonstrator=config.demonstrator or read_demonstrator(config.data),
    )
    train(task, windows, replace(config.recipe, seed=config.seed), config.out, config.resume)


def _find_tokenizer(config: TrainPolicyConfig, episodes: Episodes) -> ActionTokenizer | None:
    if config.policy == "diffusion":
        if config.tokenizer is not None:
            raise InvalidOption("a diffusion policy has no tokenizer: leave out --tokenizer")
        return None
    if config.tokenizer is None:
        raise InvalidOption("an autoregressive policy needs --tokenizer, a checkpoint or run of oat fit")
    tokenizer = load_tokenizer(config.tokenizer)
    if tokenizer.action_dim != episodes.action_dim:
        raise InvalidOption(
            f"{config.data} has {episodes.action_dim}-D actions, the tokenizer is for {tokenizer.action_dim}-D"
        )
    return tokenizer
