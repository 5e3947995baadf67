"""What `oat fit` and `oat train` are told; importing it costs nothing, so that the command line shows its help at once.

The hyper-parameters of a kind are declared beside it (`oat.tokenizers.config`), those of the optimisation in
`oat.nn.recipe`; what is declared here is what belongs to no model: data, directories, the split.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro

from oat.errors import InvalidOption, unknown_name
from oat.io.options import change, options_of
from oat.nn.recipe import TrainConfig
from oat.policies import POLICIES
from oat.policies.config import PolicyConfig
from oat.policies.config import Preset as PolicyPreset
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.config import OAT_PRESETS, Preset, TokenizerConfig

Normalization = Literal["min_max", "quantile", "mean_std", "none"]


@dataclass(frozen=True)
class FitConfig:
    """What to fit, to what, and how."""

    data: Path
    """Demonstrations in any known format."""
    out: Path
    """The run's directory; its best and last checkpoints are below it."""
    tokenizer: str = "oat"
    """Which kind of tokenizer; it decides what other options there are."""
    preset: str = "cpu"
    """Size and recipe of a learned tokenizer: tiny, cpu or paper; the other options' defaults are the preset's."""
    action_horizon: int = 32
    """H_a: actions per chunk."""
    normalization: Normalization = "min_max"
    """How actions are brought to model space."""
    transform: str = "identity"
    """Applied before normalisation: relative, delta, unwrap_angles or rotation_6d, or with options as JSON, such as
    '{"kind": "relative", "dims": [0, 1, 2]}'."""
    validation: float = 0.1
    """Share of episodes held out."""
    seed: int = 0
    """Determines the split, the initial weights and the training."""
    resume: bool = False
    """Continue the run at OUT; what is not trained is fitted anew there."""
    model: TokenizerConfig = field(default_factory=lambda: OAT_PRESETS["cpu"].model)
    recipe: TrainConfig | None = field(default_factory=lambda: OAT_PRESETS["cpu"].training)
    """None for what is not trained."""

    def __post_init__(self) -> None:
        expected = TOKENIZERS.config(self.tokenizer)
        if not isinstance(self.model, expected) or (self.recipe is None) == expected.trained():
            raise InvalidOption(
                f"{self.tokenizer} is configured by {expected.__name__}, got {type(self.model).__name__}: "
                "FitConfig.of gives the preset's"
            )

    @classmethod
    def of(cls, data: Path, out: Path, tokenizer: str = "oat", preset: str = "cpu", **options: Any) -> "FitConfig":
        """Return the configuration with these options, named as on the command line; all others are the preset's."""
        usual = preset_of(tokenizer, preset)
        whole = cls(data, out, tokenizer, preset, model=usual.model, recipe=usual.training)
        changed, unknown = change(whole, options)
        for name in unknown:
            raise refused_option(tokenizer, name)
        return changed

    def usual(self) -> "FitConfig":
        """Return the configuration of the same kind and preset with nothing else changed."""
        return type(self).of(self.data, self.out, self.tokenizer, self.preset)


def preset_of(tokenizer: str, preset: str) -> Preset:
    """Return a kind's preset by name, without importing the kind."""
    presets = TOKENIZERS.config(tokenizer).presets()
    if preset not in presets:
        raise unknown_name("preset", preset, presets)
    found: Preset = presets[preset]
    return found


def options_of_kind(tokenizer: str) -> set[str]:
    """Return the names of the options that only kinds with such a configuration have."""
    preset = next(iter(TOKENIZERS.config(tokenizer).presets().values()))
    parts = (preset.model,) if preset.training is None else (preset.model, preset.training)
    return {name for part in parts for name, _ in options_of(part)}


def refused_option(tokenizer: str, name: str) -> InvalidOption:
    """Return the error for an option that a kind of tokenizer does not have, naming the kinds that have it."""
    users = [kind for kind in TOKENIZERS if name in options_of_kind(kind)]
    return _means_nothing(tokenizer, name, users, "tokenizer")


def _means_nothing(kind: str, name: str, users: Sequence[str], sort: str) -> InvalidOption:
    whose = f"it is for {' and '.join(users)}" if users else f"nor to any other {sort}"
    return InvalidOption(f"--{name.replace('_', '-')} means nothing to {kind}, {whose}: leave it out")


_SIZE_OF_PRESET = PolicyConfig()
_RECIPE_OF_PRESET = TrainConfig()


@dataclass(frozen=True)
class TrainPolicyConfig:
    """Which policy to train, on what, and how."""

    data: Path
    """Demonstrations in any known format."""
    out: Path
    """The run's directory; its best and last checkpoints are below it."""
    policy: str = "autoregressive"
    """Which kind of policy; it decides what other options there are."""
    tokenizer: Path | None = None
    """Autoregressive: the tokenizer's checkpoint or run; it becomes part of the policy's checkpoint."""
    preset: str = "cpu"
    """Size and recipe: tiny, cpu or paper; the recipe's defaults are the preset's."""
    observe: tuple[str, ...] = ("observation.state",)
    """Observation keys to see: vectors and cameras, such as observation.images.front."""
    obs_horizon: int = 2
    """H_o: frames up to and including the current one."""
    action_horizon: int = 32
    """H_a: actions per chunk; an autoregressive policy has its tokenizer's."""
    normalization: Normalization = "min_max"
    """How actions are brought to model space; an autoregressive policy has its tokenizer's way."""
    transform: str = "identity"
    """Applied to actions before normalisation, as in oat fit; an autoregressive policy has its tokenizer's."""
    vision_backbone: str | None = None
    """A Hugging Face vision model by name or directory; by default convolutions are trained from scratch."""
    vision_channels: tuple[int, ...] = ()
    """Features of those convolutions, each at half the resolution; by default 16 32 64, at preset paper 32 64 64."""
    freeze_vision: bool = False
    """Whether the backbone's weights stay as they are."""
    vision_learning_rate: float = 0.2
    """The backbone's learning rate as a share of the policy's; the paper has 1e-5 beside 5e-5."""
    text_encoder: str | None = None
    """A Hugging Face text encoder by name or directory; by default each task string has a learned embedding."""
    demonstrator: Literal["human", "scripted"] | None = None
    """Who demonstrated, if the data set does not say; policies over tokens act by it, and evaluations record it."""
    search: int = 0
    """Autoregressive: how many times each token that is learned may first move to a neighbouring code that makes the
    decoded prefixes better; 0 takes the encoder's tokens."""
    validation: float = 0.1
    """Share of episodes held out."""
    seed: int = 0
    """Determines the split, the initial weights and the training."""
    resume: bool = False
    """Continue the run at OUT."""
    model: PolicyConfig = _SIZE_OF_PRESET
    recipe: TrainConfig = _RECIPE_OF_PRESET

    def __post_init__(self) -> None:
        if self.vision_channels and self.vision_backbone is not None:
            raise InvalidOption("--vision-channels is for convolutions from scratch: leave it or --vision-backbone out")
        # What is usual follows from two other fields: no default of its own could be right for all of them.
        if self.model is _SIZE_OF_PRESET:
            object.__setattr__(self, "model", policy_preset_of(self.policy, self.preset).model)
        if self.recipe is _RECIPE_OF_PRESET:
            object.__setattr__(self, "recipe", policy_preset_of(self.policy, self.preset).training)

    @property
    def convolutions(self) -> tuple[int, ...]:
        """Return the features of convolutions from scratch; on a processor narrow ones take a third of the time."""
        return self.vision_channels or ((32, 64, 64) if self.preset == "paper" else (16, 32, 64))

    @classmethod
    def of(
        cls, data: Path, out: Path, preset: str = "cpu", policy: str = "autoregressive", **options: Any
    ) -> "TrainPolicyConfig":
        """Return the configuration with these options, named as on the command line; all others are the preset's."""
        whole = cls(data, out, policy, preset=preset)
        changed, unknown = change(whole, options)
        for name in unknown:
            if any(name in options_of_policy(kind) for kind in POLICIES):
                raise refused_policy_option(policy, name)
            raise unknown_name("option", name, (known for known, _ in options_of(whole)))
        return changed

    def usual(self) -> "TrainPolicyConfig":
        """Return the configuration of the same kind and preset with nothing else changed."""
        return type(self).of(self.data, self.out, self.preset, self.policy)


def options_of_policy(policy: str) -> set[str]:
    """Return the names of the options that only policies with such a configuration have."""
    return {name for name, _ in options_of(next(iter(POLICIES.config(policy).presets().values())).model)}


def refused_policy_option(policy: str, name: str) -> InvalidOption:
    """Return the error for an option that a kind of policy does not have, naming the kinds that have it."""
    users = [kind for kind in POLICIES if name in options_of_policy(kind)]
    return _means_nothing(policy, name, users, "policy")


def policy_preset_of(policy: str, preset: str) -> PolicyPreset:
    """Return the preset of a kind of policy by name, without importing the kind."""
    presets = POLICIES.config(policy).presets()
    if preset not in presets:
        raise unknown_name("preset", preset, presets)
    found: PolicyPreset = presets[preset]
    return found


OUTCOME_FILE = "outcome.json"
"""The table of what a stopping head does on held-out chunks, beside the head."""


@dataclass(frozen=True)
class CalibrateConfig:
    """Which policy gets a stopping head, from which demonstrations, and for how many executed actions."""

    policy: tyro.conf.Positional[Path]
    """The policy's checkpoint or run, over a tokenizer whose every prefix decodes; it stays as it is."""
    data: Path
    """The demonstrations that it was trained on: those held out then calibrate the head."""
    out: Path
    """The head's directory."""
    execute: int = 16
    """Actions of each chunk that will be executed: the error is theirs."""
    share: float = 0.9
    """Share of chunks whose error must be within the bound that a rule stops by."""
    windows: int = 4096
    """Training chunks that the head learns from; as many held-out ones calibrate it at most."""
    steps: int = 2000
    """Training steps of the head."""
    batch: int = 256
    """Chunks in a training step."""
    learning_rate: float = 1e-3
    seed: int = 0
    """Determines the chunks, the initial weights and the order."""

    def __post_init__(self) -> None:
        if min(self.execute, self.windows, self.steps, self.batch) < 1:
            raise InvalidOption("execute, windows, steps and batch must be at least 1")
        if not 0 < self.share < 1 or not self.learning_rate > 0:
            raise InvalidOption(
                f"share must be between 0 and 1 and learning_rate positive, got {self.share} and {self.learning_rate}"
            )
