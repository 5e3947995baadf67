"""The options of the policies, which LeRobot's commands show as `--policy.…` and keep in config.json."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import NormalizationMode
from lerobot.optim.optimizers import AdamWConfig
from lerobot.optim.schedulers import DiffuserSchedulerConfig
from lerobot.utils.constants import ACTION

from oat.errors import InvalidOption, unknown_name
from oat.nn.recipe import TrainConfig
from oat.policies import POLICIES
from oat.policies.config import Preset
from oat.policies.decoding import DecodingOptions

DECODINGS = ("usual", "tokens", "paper")


def _as_they_are() -> dict[str, NormalizationMode]:
    """Return that LeRobot normalises nothing: tokenizer and policy know the ranges of their data themselves."""
    return dict.fromkeys(("ACTION", "STATE", "ENV", "VISUAL"), NormalizationMode.IDENTITY)


@PreTrainedConfig.register_subclass("oat")
@dataclass
class OATConfig(PreTrainedConfig):
    """Configure a next-token policy over OAT's ordered tokens."""

    policy_kind: ClassVar[str] = "autoregressive"
    tokenizer_kind: ClassVar[str | None] = "oat"

    n_obs_steps: int = 2
    """H_o: frames that the policy sees; it keeps them itself."""
    chunk_size: int = 32
    """H_a: actions per chunk. A tokenizer that is given has its own."""
    n_action_steps: int = 16
    """Actions of each chunk that are executed."""
    preset: str = "cpu"
    """Size and recipe of policy and tokenizer: tiny, cpu or paper."""
    tokenizer: str | None = None
    """A tokenizer that `oat fit` has fitted; without one, training begins by fitting one to the data set."""
    tokenizer_steps: int | None = None
    """Optimiser steps of the tokenizer that is fitted, if not the preset's."""
    tokenizer_seed: int = 0
    """Seed of the tokenizer that is fitted."""
    image_size: int | None = None
    """Height and width to which images are averaged down; None sees them as they are."""
    num_tokens: int | None = None
    """K: tokens to act from; None for all."""
    decoding: str = "usual"
    """How tokens become a chunk: usual (as trained), tokens (without the remainder) or paper (sampled, without)."""
    temperature: float = 1.0
    """Temperature of sampling; one other than 1 samples, and 1 is as the policy was trained for."""
    top_k: int = 10
    """Sample among so many most likely tokens, 0 for all; a number other than 10 samples."""
    denoising_steps: int | None = None
    """Denoising steps of a diffusion policy."""
    optimizer_lr: float | None = None
    """Peak learning rate, if not the preset's."""
    scheduler_warmup_steps: int = 100
    """Steps of linear warm-up."""
    normalization_mapping: dict[str, NormalizationMode] = field(default_factory=_as_they_are)
    description: dict[str, Any] | None = None
    """What the policy is, tasks and tokenizer included; training writes it, and acting needs nothing else."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoding not in DECODINGS:
            raise unknown_name("decoding", self.decoding, DECODINGS)
        if not 1 <= self.n_action_steps <= self.chunk_size:
            raise InvalidOption(f"n_action_steps must be in 1…{self.chunk_size}, got {self.n_action_steps}")
        self.chosen_preset()

    def chosen_preset(self) -> Preset:
        """Return the preset's model and recipe, or raise `UnknownName`."""
        presets = POLICIES.config(self.policy_kind).presets()
        if self.preset not in presets:
            raise unknown_name("preset", self.preset, presets)
        chosen: Preset = presets[self.preset]
        return chosen

    @property
    def recipe(self) -> TrainConfig:
        """Return how the preset trains a policy of this kind."""
        return self.chosen_preset().training

    def decoding_options(self) -> DecodingOptions:
        """Return what the options ask of the policy when it acts."""
        prefixes = () if self.num_tokens is None else (self.num_tokens,)
        if self.decoding == "paper":
            return DecodingOptions.paper(prefixes)
        return DecodingOptions(
            num_tokens=prefixes,
            temperature=None if self.temperature == 1.0 else self.temperature,
            top_k=self.top_k or None,
            remainder=False if self.decoding == "tokens" else None,
            denoising_steps=self.denoising_steps,
        )

    @property
    def observation_delta_indices(self) -> list[int]:
        """Return which frames a training batch holds, relative to the current one."""
        return list(range(1 - self.n_obs_steps, 1))

    @property
    def action_delta_indices(self) -> list[int]:
        """Return which actions a training batch holds: the chunk from the current frame on."""
        return list(range(self.chunk_size))

    @property
    def reward_delta_indices(self) -> None:
        """Return that no rewards are needed."""

    def get_optimizer_preset(self) -> AdamWConfig:
        """Return the recipe's optimizer."""
        recipe = self.recipe
        return AdamWConfig(
            lr=self.optimizer_lr or recipe.learning_rate,
            betas=recipe.betas,
            weight_decay=recipe.weight_decay,
            grad_clip_norm=recipe.clip,
        )

    def get_scheduler_preset(self) -> DiffuserSchedulerConfig:
        """Return the recipe's learning-rate schedule."""
        name = "cosine" if self.recipe.schedule == "cosine" else "constant_with_warmup"
        return DiffuserSchedulerConfig(name=name, num_warmup_steps=self.scheduler_warmup_steps)

    def validate_features(self) -> None:
        """Raise `InvalidOption` for a data set without actions or without anything to observe."""
        if not self.input_features or ACTION not in (self.output_features or {}):
            raise InvalidOption("the policy needs actions and at least one observation")


@PreTrainedConfig.register_subclass("quest")
@dataclass
class QueSTConfig(OATConfig):
    """Configure a next-token policy over QueST's tokens."""

    tokenizer_kind: ClassVar[str | None] = "quest"


@PreTrainedConfig.register_subclass("dp")
@dataclass
class DPConfig(OATConfig):
    """Configure a diffusion policy, which has no tokenizer."""

    policy_kind: ClassVar[str] = "diffusion"
    tokenizer_kind: ClassVar[str | None] = None


@PreTrainedConfig.register_subclass("bc")
@dataclass
class BCConfig(OATConfig):
    """Configure behaviour cloning by chunk regression, which has no tokenizer."""

    policy_kind: ClassVar[str] = "regression"
    tokenizer_kind: ClassVar[str | None] = None
