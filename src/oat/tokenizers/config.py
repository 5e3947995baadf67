"""The hyper-parameters of every kind of tokenizer, each declared once, and their presets; no torch is imported.

`oat fit` is generated from these classes: a field is an option, the string under it is its help.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from oat.errors import InvalidOption, refuse_unused
from oat.io.added_fields import added
from oat.io.flags import HIDDEN, flag
from oat.nn.recipe import TrainConfig
from oat.nn.width import Width

Keep = Literal["uniform", "powers_of_two", "half_whole", "full"]
RegisterAttention = Literal["causal", "full"]

PRESETS = ("tiny", "cpu", "paper")
"""Names of the sizes that every kind has: for tests, for training on a CPU, and the paper's."""
DOWNSAMPLING = 4
"""Number of actions that QueST makes one token of."""

Model = TypeVar("Model", bound="TokenizerConfig")
Learned = TypeVar("Learned", bound="AutoencoderConfig")
Objective = TypeVar("Objective", bound="ObjectiveConfig")


@dataclass(frozen=True)
class TokenizerConfig:
    """Declare the hyper-parameters of a tokenizer; every kind has a subclass of its own."""

    label: ClassVar[str]
    """Name of the kind in tables."""

    @classmethod
    def presets(cls) -> Mapping[str, "Preset"]:
        """Return the kind's presets by name; a kind without sizes is the same in all of them."""
        return dict.fromkeys(PRESETS, Preset(cls()))

    @classmethod
    def trained(cls) -> bool:
        """Return whether the kind is trained step by step, and so has a recipe."""
        return any(preset.training is not None for preset in cls.presets().values())

    def settled(self: Model, changed: Collection[str]) -> Model:
        """Return the configuration with those hyper-parameters adapted that follow from the ones that were changed."""
        return self

    def for_horizon(self: Model, action_horizon: int) -> Model:
        """Return the configuration for chunks of this many actions."""
        return self


@dataclass(frozen=True)
class Preset:
    """Hold a size of a tokenizer and the recipe to train it; a kind that is not trained has none."""

    model: TokenizerConfig
    training: TrainConfig | None = None


@dataclass(frozen=True)
class BinConfig(TokenizerConfig):
    """Say how finely a chunk's numbers are binned."""

    label: ClassVar[str] = "Bin"

    bins: int = 256
    """N: bins per dimension over its fitted range, and the vocabulary."""

    def __post_init__(self) -> None:
        if self.bins < 2:
            raise InvalidOption(f"at least 2 bins are needed, got {self.bins}")


@dataclass(frozen=True)
class FASTConfig(TokenizerConfig):
    """Say how a chunk's frequencies are rounded and merged."""

    label: ClassVar[str] = "FAST"

    vocab_size: int = 1024
    """Vocabulary of the byte-pair encoding, single coefficients included."""
    scale: float = 10.0
    """Coefficients are multiplied by this before rounding: larger is finer and longer."""

    def __post_init__(self) -> None:
        if self.scale <= 0 or self.vocab_size < 2:
            raise InvalidOption(f"scale must be positive and vocab_size ≥ 2, got {self.scale} and {self.vocab_size}")


@dataclass(frozen=True)
class RVQConfig(TokenizerConfig):
    """Say how many prototypes name a chunk, and among how many each is chosen."""

    label: ClassVar[str] = "RVQ"

    latent_horizon: int = 8
    """H_l: tokens per chunk."""
    levels: tuple[int, ...] = (8, 5, 5, 5)
    """The grid that each codebook's prototypes are sorted into; the product is the vocabulary."""
    iterations: int = 10
    """Iterations of k-means for each codebook."""

    def __post_init__(self) -> None:
        if self.latent_horizon < 1 or self.iterations < 1:
            raise InvalidOption("latent_horizon and iterations must be at least 1")
        if not self.levels or min(self.levels) < 2:
            raise InvalidOption(f"levels must be at least 2 each, got {self.levels}")


@dataclass(frozen=True)
class DecoderConfig:
    """Choose the decoder of a learned tokenizer and its size."""

    kind: Annotated[Literal["single_pass", "flow"], flag("decoder")] = "single_pass"
    """One pass trained on the reconstruction error, or a rectified flow from noise."""
    layers: Annotated[int, flag("decoder_layers")] = 4
    """Transformer blocks in the decoder."""
    causal: Annotated[bool, flag("causal_decoder")] = True
    """Single pass: whether step t sees only steps up to t, so that the first n steps cost only n steps' work."""
    flow_steps: int = 5
    """Flow: Euler steps from noise to actions."""

    def __post_init__(self) -> None:
        if self.layers < 1 or self.flow_steps < 1:
            raise InvalidOption("a decoder needs at least one layer and one flow step")


@dataclass(frozen=True)
class ObjectiveConfig:
    """Choose what training minimises: which prefixes' reconstruction errors, and how they are weighed."""

    keep: Keep = "uniform"
    """Distribution of prefix lengths; half_whole decodes the whole sequence half of the time, full is OAT×, without
    ordering."""
    prefixes: int = 1
    """Prefixes decoded for every encoded chunk."""
    balance: float = 0.0
    """Weight of a prefix of length K is D_K to the power of minus this, with D_K its running error: 0 weighs all
    errors alike, so that short prefixes dominate; 1 minimises the sum of log errors."""
    spread: float = 0.0
    """Weight of a repulsion between the chunks' codes at each position, which makes more of the codebook used; a share
    of the error, so that it means the same whatever the data's scale and fades as the errors do."""
    smooth: float = added(0.0)
    """Weight of the squared distance, in levels, between the latents of a chunk and of itself one step later, which
    makes fewer tokens change from step to step; a share of the error, as spread is."""

    def __post_init__(self) -> None:
        if self.prefixes < 1 or not 0 <= self.balance <= 1:
            raise InvalidOption(f"prefixes must be ≥ 1 and balance in [0, 1], got {self.prefixes} and {self.balance}")
        if self.spread < 0 or self.smooth < 0:
            raise InvalidOption(f"spread and smooth must be ≥ 0, got {self.spread} and {self.smooth}")

    def settled(self: Objective, changed: Collection[str]) -> Objective:
        """Return the objective without several prefixes where only whole sequences are kept: they would be equal."""
        if self.keep != "full":
            return self
        # The preset's several prefixes go silently, but who asked for some must be told that there are none.
        asked = {name: getattr(self, name) for name in ("prefixes", "balance") if name in changed}
        refuse_unused("--keep full", "nested dropout", **asked)
        return replace(self, prefixes=1, balance=0.0)


@dataclass(frozen=True)
class WholeSequenceObjective(ObjectiveConfig):
    """Minimise the reconstruction error of whole sequences: there is no prefix to drop."""

    # Hidden rather than absent: checkpoints store the same fields for every learned tokenizer.

    keep: Annotated[Keep, HIDDEN] = "full"
    prefixes: Annotated[int, HIDDEN] = 1
    balance: Annotated[float, HIDDEN] = 0.0


@dataclass(frozen=True)
class AutoencoderConfig(TokenizerConfig):
    """Choose the sizes of a learned tokenizer; the defaults are the paper's."""

    latent_horizon: int = 8
    """H_l: tokens per chunk."""
    levels: tuple[int, ...] = (8, 5, 5, 5)
    """Levels of each latent number; their product is the vocabulary."""
    grid: str = "tanh"
    """How latents are quantized: tanh or symmetric, which are FSQ, or another of oat.nn.quantizers.QUANTIZERS."""
    width: Width = field(default_factory=Width)
    encoder_layers: int = 2
    """Transformer blocks in the encoder."""
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)

    def __post_init__(self) -> None:
        if self.latent_horizon < 1 or self.encoder_layers < 1:
            raise InvalidOption("latent_horizon and encoder_layers must be at least 1")

    def settled(self: Learned, changed: Collection[str]) -> Learned:
        """Return the configuration with its objective settled."""
        return replace(self, objective=self.objective.settled(changed))


@dataclass(frozen=True)
class OATConfig(AutoencoderConfig):
    """Choose the size of the paper's tokenizer, and its ablations."""

    label: ClassVar[str] = "OAT"

    register_attention: RegisterAttention = "causal"
    """Whether register i sees registers j ≤ i only, or all of them (an ablation)."""

    @classmethod
    def presets(cls) -> Mapping[str, Preset]:
        return OAT_PRESETS


@dataclass(frozen=True)
class QueSTConfig(AutoencoderConfig):
    """Choose the size of QueST's tokenizer, whose latent horizon is a quarter of the action horizon."""

    label: ClassVar[str] = "QueST"

    latent_horizon: Annotated[int, HIDDEN] = 8  # follows from the action horizon, so that it is not an option
    objective: WholeSequenceObjective = field(default_factory=WholeSequenceObjective)
    kernel: int = 5
    """Width of the convolutions."""

    @classmethod
    def presets(cls) -> Mapping[str, Preset]:
        return QUEST_PRESETS

    def for_horizon(self: Learned, action_horizon: int) -> Learned:
        """Return the configuration with one token for every four actions."""
        return replace(self, latent_horizon=action_horizon // DOWNSAMPLING)


_TINY_SIZE: dict[str, Any] = {"width": Width(64, 32), "encoder_layers": 1, "decoder": DecoderConfig(layers=1)}
# Half the paper's width and decoder layers; codes of the symmetric grid are used almost evenly: oat.nn.fsq.
_CPU_SIZE: dict[str, Any] = {"grid": "symmetric", "width": Width(128, 32), "decoder": DecoderConfig(layers=2)}
_RECIPES = {
    "tiny": TrainConfig(steps=500, batch_size=64, learning_rate=4e-3, validate_every=250),
    # About 12 minutes on two cores; results/tokenizers.md compares it with the paper's, which takes five times as many
    # steps to larger errors.
    "cpu": TrainConfig(steps=4000, batch_size=32, learning_rate=3e-3, optimizer="muon"),
    # The paper does not state its recipe: optimiser, batch, averaging and precision are those of its released code.
    "paper": TrainConfig(
        steps=200_000, batch_size=256, learning_rate=5e-5, schedule="constant", ema_decay=0.9999, precision="bf16"
    ),
}

OAT_PRESETS: dict[str, Preset] = {
    "tiny": Preset(OATConfig(**_TINY_SIZE, objective=ObjectiveConfig(prefixes=4, balance=0.5)), _RECIPES["tiny"]),
    # Several balanced prefixes and a repulsion of codes reach the same error in fewer steps: results/tokenizers.md.
    "cpu": Preset(
        OATConfig(**_CPU_SIZE, objective=ObjectiveConfig("half_whole", prefixes=2, balance=0.25, spread=0.02)),
        _RECIPES["cpu"],
    ),
    "paper": Preset(OATConfig(), _RECIPES["paper"]),
}

QUEST_PRESETS: dict[str, Preset] = {
    "tiny": Preset(QueSTConfig(**_TINY_SIZE), _RECIPES["tiny"]),
    "cpu": Preset(QueSTConfig(**_CPU_SIZE, objective=WholeSequenceObjective(spread=0.02)), _RECIPES["cpu"]),
    "paper": Preset(QueSTConfig(), _RECIPES["paper"]),
}
