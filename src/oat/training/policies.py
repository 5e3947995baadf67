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
from oat.interfaces import UNKNOWN_DEMONSTRATOR, Observation
from oat.io.notes import note
from oat.io.training_record import Measures, TrainingRecord
from oat.policies import POLICIES
from oat.policies.config import AutoregressiveConfig, PolicyConfig
from oat.policies.context import VisionConfig, describe_context
from oat.policies.decoding import Decoding
from oat.policies.learning import Lesson, PolicySetup
from oat.policies.policy import Policy
from oat.policies.predictor import Chunk
from oat.policies.sampling import Noise
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.decoder import masked_error
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.space import ActionSpace
from oat.training.config import TrainPolicyConfig
from oat.training.loop import train
from oat.training.record import begin_record
from oat.training.token_cache import TokenCache, cache_tokens, encode_batch, tokenizer_fingerprint
from oat.training.tokenizers import action_space

__all__ = ["PolicyTraining", "observation_of", "open_loop_errors", "train_policy"]

_VALIDATION_WINDOWS = 512
_GENERATED_WINDOWS = 128  # of which actions are generated; Bin takes hundreds of steps for each
_BLOCK = 64  # windows that are evaluated at a time: all their images at once may not fit


def observation_of(windows: Windows, batch: Batch) -> Observation:
    """Return a batch's observations as a policy takes them."""
    return Observation(batch.observations, tuple(windows.tasks[number] for number in batch.task_ids))


def open_loop_errors(
    policy: Policy, windows: Windows, batches: Iterable[Batch], decoding: Decoding
) -> Float[Tensor, "chunks windows"]:
    """Return the errors in model space of every chunk that `stream` gives; NaN where it did not decode."""
    blocks = []
    for batch in batches:
        noise = Noise.of(batch.windows.tolist(), [0] * len(batch))
        chunks = policy.stream(observation_of(windows, batch), decoding, noise)
        blocks.append(torch.stack([_errors(policy, chunk, batch) for chunk in chunks]))
    return torch.cat(blocks, dim=1)


def _errors(policy: Policy, chunk: Chunk, batch: Batch) -> Float[Tensor, " batch"]:
    actions, valid, state = transform_inputs(batch, policy.space.transform, chunk.actions.device)
    target = policy.to_model_space(actions, state)
    decided = policy.to_model_space(chunk.actions, state)
    return masked_error(decided, target, valid).where(chunk.valid, torch.nan)


@dataclass
class PolicyTraining:
    """Train a policy of any kind: what it learns, and how that is measured, it says itself."""

    windows: Windows
    held_out: Windows
    vision_learning_rate: float
    module: Policy
    taught: TokenCache | None = None
    """The training windows' tokens, where they are worth keeping; otherwise they are encoded batch by batch."""
    search: int = 0
    """How many times each token may move to a better code before it is learned."""

    def __post_init__(self) -> None:
        numbers = np.arange(len(self.held_out))
        # The same windows in every validation and every run, so that scores can be compared.
        order = Permutation(len(numbers), derive_key(0))(numbers)
        self._validation = order[:_VALIDATION_WINDOWS]

    def identity(self) -> Mapping[str, Any]:
        """Return what makes a run another one: the policy's kind and sizes, and the tokenizer it learns from."""
        policy = self.module
        described = {name: value for name, value in policy.describe().items() if name != "trained_on"}
        normalization = policy.training_record.normalization
        learning = {"vision_learning_rate": self.vision_learning_rate, "normalization": normalization}
        identity = {"policy": policy.kind, **learning, **described}
        if isinstance(policy.config, AutoregressiveConfig):
            # Files leave out its default, and what a run does not tell counts as equal.
            identity["varied"] = policy.config.varied
        if policy.teacher is not None:
            identity["tokenizer fingerprint"] = tokenizer_fingerprint(policy.teacher)
        if self.search:  # named only where there is one: earlier runs are resumed as they were
            identity["search"] = self.search
        return identity

    def learning_rates(self) -> Mapping[str, float]:
        """Return the factor of a pretrained vision backbone's learning rate."""
        return {"context.vision.": self.vision_learning_rate}

    def save(self, module: nn.Module, directory: Path, progress: TrainingRecord) -> None:
        """Write the policy's files with a record of the training so far."""
        assert isinstance(module, Policy)
        module.training_record = module.training_record.updated(progress)
        module.save_files(directory)

    def loss(self, module: nn.Module, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the policy's own loss of a batch."""
        return self.module.loss(module, self.lesson(batch, self.taught), generator)

    def validate(self, module: nn.Module) -> Measures:
        """Return the policy's own measures on held-out windows."""
        assert isinstance(module, Policy)
        return module.measure(self)

    def lesson(self, batch: Batch, taught: TokenCache | None = None) -> Lesson:
        """Return a batch as the policy learns it, with tokens that were kept or else are encoded now."""
        policy = self.module
        device = policy.context.positions.device
        values = {key: torch.from_numpy(batch.observations[key]).to(device) for key in policy.context.config.keys}
        tasks = torch.from_numpy(batch.task_ids).to(device)
        tokens = None
        if policy.teacher is not None:
            # Held-out windows are few and are encoded every time; only the training's are kept.
            tokens = encode_batch(policy.teacher, batch, self.search) if taught is None else taught[batch.windows]
        actions, valid, state = transform_inputs(batch, policy.space.transform, device)
        return Lesson(values, tasks, policy.to_model_space(actions, state), valid, tokens)

    def lessons(self) -> Iterator[Lesson]:
        """Return held-out demonstrations, a few at a time."""
        return map(self.lesson, self._blocks(_VALIDATION_WINDOWS))

    def open_loop_errors(self, policy: Policy, decoding: Decoding) -> Float[Tensor, "chunks windows"]:
        """Return the errors of a policy's chunks on the first held-out windows."""
        return open_loop_errors(policy, self.held_out, self._blocks(_GENERATED_WINDOWS), decoding)

    def _blocks(self, count: int) -> Iterator[Batch]:
        chosen = self._validation[:count]
        return (self.held_out[chosen[first : first + _BLOCK]] for first in range(0, len(chosen), _BLOCK))


def train_policy(config: TrainPolicyConfig) -> None:
    """Train and save a policy; `out/best` is the checkpoint to use."""
    kind = POLICIES.find(config.policy)
    episodes = open_dataset(config.data)
    tokenizer = _find_tokenizer(config, episodes)
    if not isinstance(config.model, kind.config_class):
        raise InvalidOption(f"{kind.kind} is configured by {kind.config_class.__name__}, got {config.model}")
    if tokenizer is not None and tokenizer.lattice() is None and isinstance(config.model, AutoregressiveConfig):
        usual = config.usual().model
        assert isinstance(usual, AutoregressiveConfig)
        config.model.refuse_without_lattice(usual, tokenizer.kind)
    space = _action_space(config, episodes) if tokenizer is None else tokenizer.space
    vision = VisionConfig(config.vision_backbone, config.freeze_vision, channels=config.convolutions)
    context = describe_context(episodes, config.observe, config.obs_horizon, vision, config.text_encoder)
    transform = space.transform
    # The action transform may refer to a state that the policy does not observe.
    extra = () if transform.state_key in (None, *config.observe) else (str(transform.state_key),)
    window = WindowConfig(space.action_horizon, config.obs_horizon, (*config.observe, *extra))
    train_ids, held_out_ids = split_episodes(episodes, config.validation, config.seed)
    windows, held_out = (Windows(episodes.select(ids), window) for ids in (train_ids, held_out_ids))
    torch.manual_seed(config.seed)
    taught = None
    demonstrator = config.demonstrator or read_demonstrator(config.data)
    _tell_whose_ways(config.model, demonstrator)
    if tokenizer is None:
        normalizer = Normalizer.from_statistics(action_statistics(windows, transform), config.normalization)
        setup = PolicySetup(context, space, normalizer, demonstrator=demonstrator)
    else:
        taught = cache_tokens(tokenizer, windows, config.search) if tokenizer.caches_tokens else None
        longest = None if taught is None else taught.longest
        setup = PolicySetup(context, space, tokenizer.normalizer, tokenizer, longest, demonstrator)
    policy = kind.for_training(setup, config.model)
    policy.context.fit(windows.episodes)
    normalization = config.normalization if tokenizer is None else tokenizer.training_record.normalization
    policy.training_record = replace(
        begin_record("train", config, episodes),
        normalization=normalization,
        demonstrator=demonstrator,
    )
    vision_learning_rate = 1.0 if config.vision_backbone is None else config.vision_learning_rate
    task = PolicyTraining(windows, held_out, vision_learning_rate, policy, taught, config.search)
    train(task, windows, replace(config.recipe, seed=config.seed), config.out, config.resume)


def _tell_whose_ways(model: PolicyConfig, demonstrator: str) -> None:
    """Say what is taken for granted where nobody noted who demonstrated."""
    if isinstance(model, AutoregressiveConfig) and model.varied is None and UNKNOWN_DEMONSTRATOR in demonstrator:
        note(
            "the data do not say who demonstrated, and are taken for people's: the policy will act from sampled "
            "tokens, and not from a mean of what was done; --demonstrator scripted or human settles it"
        )


def _action_space(config: TrainPolicyConfig, episodes: Episodes) -> ActionSpace:
    return action_space(episodes, config.action_horizon, transforms.parse(config.transform))


def _find_tokenizer(config: TrainPolicyConfig, episodes: Episodes) -> BaseTokenizer | None:
    if not POLICIES.config(config.policy).takes_tokenizer:
        if config.tokenizer is not None:
            raise InvalidOption(f"a policy of the kind {config.policy} has no tokenizer: leave out --tokenizer")
        if config.search:
            raise InvalidOption(f"a policy of the kind {config.policy} has no tokens to search for: leave out --search")
        return None
    if config.tokenizer is None:
        raise InvalidOption(f"a policy of the kind {config.policy} needs --tokenizer, a checkpoint or run of oat fit")
    tokenizer = load_tokenizer(config.tokenizer)
    tokenizer.check_search(config.search)  # before hours of encoding and training
    if tokenizer.action_dim != episodes.action_dim:
        raise InvalidOption(
            f"{config.data} has {episodes.action_dim}-D actions, the tokenizer is for {tokenizer.action_dim}-D"
        )
    return tokenizer
