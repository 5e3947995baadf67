"""How a model is trained; importing it costs nothing, so that the command line can show its help at once."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from oat.nn.recipe import TrainConfig as TrainConfig

Value = TypeVar("Value")


def override(value: Value, **changes: Any) -> Value:
    """A copy of a frozen value with those fields changed that are not None."""
    return replace(value, **{name: change for name, change in changes.items() if change is not None})  # type: ignore[type-var]


@dataclass(frozen=True)
class RecipeOptions:
    """Departures from the preset's recipe; None keeps its value."""

    steps: int | None = None
    """Optimiser steps."""
    batch_size: int | None = None
    """Chunks per step, over all processes together."""
    learning_rate: float | None = None
    """Peak learning rate."""
    optimizer: Literal["adamw", "muon"] | None = None
    """AdamW for everything, or Muon for the transformers' matrices and AdamW for the rest."""
    schedule: Literal["cosine", "constant"] | None = None
    """After the warm-up: down to a hundredth along a cosine, or constant."""
    precision: Literal["no", "bf16"] | None = None
    """Automatic mixed precision."""
    compile: bool | None = None
    """Whether to use torch.compile."""
    validate_every: int | None = None
    """Steps between validations and checkpoints."""
    workers: int | None = None
    """Processes that read batches ahead; images need them."""
    wandb: str | None = None
    """A Weights & Biases project to log to as well."""

    def apply(self, recipe: TrainConfig) -> TrainConfig:
        return override(recipe, **{field.name: getattr(self, field.name) for field in fields(self)})


@dataclass(frozen=True)
class TokenizerOptions:
    """Departures from the tokenizer's usual form; None keeps it."""

    latent_horizon: int | None = None
    """H_l: tokens per chunk (OAT)."""
    levels: tuple[int, ...] | None = None
    """FSQ levels; their product is the vocabulary."""
    grid: Literal["tanh", "symmetric"] | None = None
    """How FSQ squashes and rounds."""
    dim: int | None = None
    """Model dimension, a multiple of the head dimension."""
    encoder_layers: int | None = None
    """Transformer blocks in the encoder."""
    decoder_layers: int | None = None
    """Transformer blocks in the decoder."""
    decoder: Literal["single_pass", "flow"] | None = None
    """One pass trained on the reconstruction error, or a rectified flow from noise."""
    causal_decoder: bool | None = None
    """Single pass: whether step t sees only steps up to t, so that the first n steps cost only n steps' work."""
    keep: Literal["uniform", "powers_of_two", "full"] | None = None
    """OAT: distribution of the prefix lengths; full is OAT×, without ordering."""
    prefixes: int | None = None
    """OAT: prefixes decoded for every encoded chunk."""
    balance: float | None = None
    """OAT: a prefix of length K weighs D_K to the power of minus this, with D_K its running error."""
    spread: float | None = None
    """QueST and OAT: weight of a repulsion between codes, which makes more of the codebook used."""
    register_attention: Literal["causal", "full"] | None = None
    """OAT: whether register i sees registers j ≤ i only, or all of them."""
    scale: float | None = None
    """FAST: coefficients are multiplied by this before rounding; larger is finer and longer."""
    vocab_size: int | None = None
    """FAST: vocabulary of the byte-pair encoding."""
    bins: int | None = None
    """Bin: bins per dimension."""


@dataclass(frozen=True)
class FitConfig:
    """What to fit, to what, and how."""

    data: Path
    """Demonstrations in any known format."""
    out: Path
    """The run's directory; its best and last checkpoints are below it."""
    tokenizer: Literal["bin", "fast", "quest", "oat"] = "oat"
    """Which tokenizer."""
    preset: Literal["tiny", "cpu", "paper"] = "cpu"
    """Size and recipe of a learned tokenizer."""
    action_horizon: int = 32
    """H_a: actions per chunk."""
    normalization: Literal["min_max", "quantile", "mean_std"] = "min_max"
    """How actions are brought to model space."""
    transform: str = "identity"
    """Applied before normalisation: relative, delta, unwrap_angles or rotation_6d, or with options as JSON, such as
    '{"kind": "relative", "dims": [0, 1, 2]}'."""
    validation: float = 0.1
    """Share of episodes held out."""
    seed: int = 0
    """Determines the split, the initial weights and the training."""
    resume: bool = False
    """Continue the run at OUT; FAST and Bin are fitted anew there."""
    model: TokenizerOptions = field(default_factory=TokenizerOptions)
    recipe: RecipeOptions = field(default_factory=RecipeOptions)


@dataclass(frozen=True)
class TrainPolicyConfig:
    """Which policy to train, on what, and how."""

    data: Path
    """Demonstrations in any known format."""
    out: Path
    """The run's directory; its best and last checkpoints are below it."""
    policy: str = "autoregressive"
    """Which kind: next tokens of a tokenizer, denoising of actions (diffusion), or another of oat.policies.POLICIES."""
    tokenizer: Path | None = None
    """Autoregressive: the tokenizer's checkpoint or run; it becomes part of the policy's checkpoint."""
    preset: Literal["tiny", "cpu", "paper"] = "cpu"
    """Size and recipe."""
    observe: tuple[str, ...] = ("observation.state",)
    """Observation keys to see: vectors and cameras, such as observation.images.front."""
    obs_horizon: int = 2
    """H_o: frames up to and including the current one."""
    action_horizon: int = 32
    """Diffusion: H_a, actions per chunk; an autoregressive policy has its tokenizer's."""
    normalization: Literal["min_max", "quantile", "mean_std"] = "min_max"
    """Diffusion: how actions are brought to model space."""
    transform: str = "identity"
    """Diffusion: applied to actions before normalisation, as in oat fit."""
    vision_backbone: str | None = None
    """A Hugging Face vision model by name or directory; by default convolutions are trained from scratch."""
    freeze_vision: bool = False
    """Whether the backbone's weights stay as they are."""
    vision_learning_rate: float = 0.2
    """The backbone's learning rate as a share of the policy's; the paper has 1e-5 beside 5e-5."""
    text_encoder: str | None = None
    """A Hugging Face text encoder by name or directory; by default each task string has a learned embedding."""
    demonstrator: Literal["human", "scripted"] | None = None
    """Who demonstrated, if the data set does not say; evaluations record it."""
    validation: float = 0.1
    """Share of episodes held out."""
    seed: int = 0
    """Determines the split, the initial weights and the training."""
    resume: bool = False
    """Continue the run at OUT."""
    recipe: RecipeOptions = field(default_factory=RecipeOptions)
