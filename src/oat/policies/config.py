"""The hyper-parameters of every kind of policy, each declared once, and their presets; importing this needs no torch.

`oat train` is generated from these classes: a field is an option, the string under it is its help.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from oat.errors import InvalidOption
from oat.io.added_fields import added
from oat.nn.recipe import TrainConfig
from oat.nn.width import Width

RECIPES: dict[str, TrainConfig] = {
    "tiny": TrainConfig(steps=300, batch_size=32, learning_rate=3e-3, warmup_steps=20, validate_every=150),
    "cpu": TrainConfig(steps=4000, batch_size=64, learning_rate=1e-3, weight_decay=0.01, validate_every=500),
    "paper": TrainConfig(
        steps=200_000, batch_size=256, learning_rate=5e-5, schedule="constant", ema_decay=0.9999, precision="bf16"
    ),
}
"""How a policy is trained in each preset."""


def check_mlp(width: int, depth: int) -> None:
    """Raise `InvalidOption` for a residual MLP without numbers or layers."""
    if min(width, depth) < 1:
        raise InvalidOption(f"mlp_width and mlp_depth must be positive, got {width} and {depth}")


@dataclass(frozen=True)
class PolicyConfig:
    """The size of a policy of any kind; the defaults are the paper's."""

    label: ClassVar[str] = "policy"
    """What tables call the kind."""
    takes_tokenizer: ClassVar[bool] = False
    """Whether it predicts a tokenizer's tokens; otherwise it predicts actions and has their horizon, transform and
    normalisation as options."""

    width: Width = field(default_factory=Width)
    layers: int = 4
    """Transformer blocks."""

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise InvalidOption("a policy needs at least one layer")

    @classmethod
    def presets(cls) -> Mapping[str, "Preset"]:
        """Return the kind's presets by name: for tests, for a processor, and the paper's."""
        sizes = {"tiny": cls(Width(64, 32), 2), "cpu": cls(Width(128, 32), 4), "paper": cls()}
        return {name: Preset(model, RECIPES[name]) for name, model in sizes.items()}


@dataclass(frozen=True)
class Preset:
    """Hold a size of a policy and the recipe to train it."""

    model: PolicyConfig
    training: TrainConfig


@dataclass(frozen=True)
class AutoregressiveConfig(PolicyConfig):
    """The size of a policy that predicts the next token of a tokenizer, and what it knows of tokens; the paper's takes
    them for classes."""

    label: ClassVar[str] = "autoregressive policy"
    takes_tokenizer: ClassVar[bool] = True

    codes: Literal["classes", "lattice", "auto"] = added("classes")
    """What tokens are to the policy: unrelated classes, points of the tokenizer's lattice, whose neighbours mean nearly
    the same, or whichever the tokenizer has."""
    soft_targets: float = added(0.0)
    """On a lattice: the codes around the right one are taught as well, with weights that fall off like a Gaussian of
    this standard deviation in levels; 0 teaches the right code alone."""
    remainder: float = added(0.0)
    """Weight of a regression of the chunk, which makes exact what the tokens chose wherever it goes their way; 0 has
    none."""
    greedy: bool = added(False)
    """Whether chunks are made of the most likely tokens unless demonstrators differ or a decoding says otherwise; the
    paper's are sampled."""
    varied: bool | None = added(False)
    """Whether demonstrators differ in way and pace, as people do: then chunks are of sampled tokens alone unless a
    decoding says otherwise. None asks the data who demonstrated; if nobody knows, it was people."""
    mlp_width: int = added(512)
    """Numbers in each layer of the remainder's residual MLP."""
    mlp_depth: int = added(3)
    """Layers of the remainder's residual MLP."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.soft_targets, self.remainder) < 0:
            raise InvalidOption(
                f"soft_targets and remainder must be ≥ 0, got {self.soft_targets:g} and {self.remainder:g}"
            )
        check_mlp(self.mlp_width, self.mlp_depth)

    def refuse_without_lattice(self, usual: "AutoregressiveConfig", tokenizer: str) -> None:
        """Raise `InvalidOption` for soft targets, which a tokenizer without a lattice leaves without a meaning.

        Those of the preset go silently, but who asked for others must be told.
        """
        if self.soft_targets not in (0.0, usual.soft_targets):
            raise InvalidOption(f"the tokens of {tokenizer} are not points of a lattice: leave out --soft-targets")

    def for_lattice(self, has_lattice: bool, tokenizer: str) -> "AutoregressiveConfig":
        """Return the configuration for a tokenizer that has a lattice, or else none; raise `InvalidOption` for what it
        lacks."""
        if self.codes == "classes" and self.soft_targets:
            raise InvalidOption("of classes nobody knows which are near: --codes classes needs --soft-targets 0")
        if has_lattice:
            return replace(self, codes="lattice") if self.codes == "auto" else self
        if self.codes == "lattice":
            raise InvalidOption(f"the tokens of {tokenizer} are not points of a lattice: leave out --codes lattice")
        return replace(self, codes="classes", soft_targets=0.0)

    def for_demonstrator(self, demonstrator: str) -> "AutoregressiveConfig":
        """Return the configuration for demonstrations by a program, which does the same wherever it sees the same, or
        else by people; one that samples tokens alone anyhow, as the paper's, is the same for both."""
        if self.varied is not None:
            return self
        return replace(self, varied=demonstrator != "scripted" and (self.greedy or self.remainder > 0))

    @classmethod
    def presets(cls) -> Mapping[str, "Preset"]:
        """Return the presets that kinds share; all but the paper's use what the tokenizer knows of its tokens."""
        shared = super().presets()
        asking = replace(shared["paper"], model=cls(varied=None))
        return {name: asking if name == "paper" else _knowing(each) for name, each in shared.items()}


def _knowing(preset: "Preset") -> "Preset":
    """Return a preset whose policy knows near codes, takes the likely ones, makes them exact, and is decayed more."""
    size = preset.model
    model = AutoregressiveConfig(
        size.width, size.layers, codes="auto", soft_targets=0.6, remainder=10.0, greedy=True, varied=None
    )
    return Preset(model, replace(preset.training, weight_decay=0.05))


@dataclass(frozen=True)
class DiffusionConfig(PolicyConfig):
    """The size of a policy that denoises chunks of actions, and what its network predicts."""

    label: ClassVar[str] = "diffusion policy"

    predicts: Literal["noise", "clean"] = added("noise")
    """What the network is trained to tell from a noised chunk: the noise in it, or the clean chunk."""

    @classmethod
    def presets(cls) -> Mapping[str, "Preset"]:
        """Return the presets that kinds share; all but the paper's predict clean chunks, which is learned sooner."""
        return {
            name: each if name == "paper" else replace(each, model=cls(each.model.width, each.model.layers, "clean"))
            for name, each in super().presets().items()
        }


@dataclass(frozen=True)
class RegressionConfig(PolicyConfig):
    """The size of a policy that regresses chunks of actions in one pass, and the error that it minimises."""

    label: ClassVar[str] = "regression policy"

    queries: Literal["chunk", "action"] = "chunk"
    """Learned queries that read the context: one for the whole chunk, or one for each action."""
    mlp_width: int = 512
    """Numbers in each layer of the residual MLP from queries to actions."""
    mlp_depth: int = 3
    """Layers of the residual MLP."""
    loss: Literal["mse", "l1"] = "mse"
    """The error of normalised actions that is minimised: mean squared or mean absolute."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_mlp(self.mlp_width, self.mlp_depth)

    @classmethod
    def presets(cls) -> Mapping[str, "Preset"]:
        """Return the presets that kinds share, with more weight decay: regression soon knows its data by heart."""
        shared = super().presets()
        return {name: Preset(each.model, replace(each.training, weight_decay=0.05)) for name, each in shared.items()}
