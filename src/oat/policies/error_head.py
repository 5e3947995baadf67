"""A small head that tells from a policy's state after k tokens what error the executed actions of its prefix have."""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat.errors import CheckpointError, InvalidOption
from oat.io.bounded import build_bounded, check_shapes
from oat.io.checkpoints import hash_tensors, load_checkpoint, staged_checkpoint, write_checkpoint
from oat.io.config_json import config_from_json
from oat.io.model_cards import ModelCard
from oat.io.training_record import TrainingRecord
from oat.nn.mlp import ResidualMLP
from oat.policies.stopping import RowState

if TYPE_CHECKING:
    from oat.policies.predictor import BasePredictor

KIND = "error_head"
_DEPTH = 2
_SMALLEST = 1e-8  # of an error whose logarithm is taken

_LOAD = """from oat.policies.error_head import ErrorHead

head = ErrorHead.load("DIRECTORY")  # for Residual(0.02, head), a `stop` of TokenDecoding
"""


@dataclass(frozen=True)
class HeadConfig:
    """Hold the sizes of a head, and what it was made for."""

    policy: str
    """The identity of the policy whose states it reads, its tokenizer included."""
    hidden: int
    """Numbers in a state."""
    outputs: int
    """Tokens that the policy chooses from."""
    longest: int
    """Tokens of a whole chunk."""
    executed: int
    """The first actions of a chunk, over which the error is."""
    width: int = 128
    share: float = 0.9
    """The share of chunks whose error is within the bound, after calibration."""


class ErrorHead(nn.Module):
    """Predict the root mean square error of a prefix in action units, and by how much another token lowers it.

    It reads what the policy knew when it chose the last token, and that token: together they are all tokens so far,
    and no further step of the policy is needed.
    """

    vectors: Tensor
    margin: Tensor
    scale: Tensor
    means: Tensor

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        self.mlp = ResidualMLP(2 * config.hidden + config.longest, config.width, _DEPTH, 2)
        self.register_buffer("vectors", torch.zeros(config.outputs, config.hidden))
        self.register_buffer("margin", torch.tensor(torch.inf))  # nothing is known before calibration
        self.register_buffer("scale", torch.ones(()))  # the mean error of the first prefix
        self.register_buffer("means", torch.zeros(config.longest))  # held-out errors after 1, 2, … tokens

    def forward(
        self, hidden: Float[Tensor, "*n hidden"], last: Int64[Tensor, "*n"], tokens: Int64[Tensor, "*n"]
    ) -> Float[Tensor, "*n 2"]:
        """Return the logarithm of the error after so many tokens, and the drop by one more, both over the scale."""
        place = nn.functional.one_hot(tokens - 1, self.config.longest).to(hidden.dtype)
        return self.mlp(torch.cat([hidden, self.vectors[last], place], dim=-1))

    def error(
        self, hidden: Float[Tensor, "*n hidden"], last: Int64[Tensor, "*n"], tokens: Int64[Tensor, "*n"]
    ) -> Float[Tensor, "*n"]:
        """Return the predicted error, as it is before calibration."""
        return self(hidden, last, tokens)[..., 0].exp() * self.scale

    @torch.no_grad()
    def bound(self, state: RowState) -> Float[Tensor, " rows"]:
        """Return what the error is below in the calibrated share of chunks."""
        return self.margin * self.error(*_inputs(state))

    @torch.no_grad()
    def drop(self, state: RowState) -> Float[Tensor, " rows"]:
        """Return by how much the next token is expected to lower the error."""
        return self(*_inputs(state))[..., 1] * self.scale

    @cached_property
    def identity(self) -> str:
        """Return what tells this head from others of the same policy, which records carry."""
        return hash_tensors(self.state_dict())[:6]

    def tolerance(self, share: float) -> float:
        """Return the bound that lies between the mean errors of all tokens (0) and of one (1)."""
        return float(self.margin * (self.means[-1] + share * (self.means[0] - self.means[-1])))

    def part_of_first(self, share: float) -> float:
        """Return a part of the mean error of one token."""
        return float(share * self.means[0])

    def price(self, share: float) -> float:
        """Return a part of what a token lowers the error by on average."""
        return float(share * (self.means[0] - self.means[-1]) / max(1, self.config.longest - 1))

    def check(self, predictor: "BasePredictor", executed: int | None) -> None:
        """Raise `InvalidOption` for a policy or a number of executed actions that it was not calibrated for."""
        if predictor.identity is None:
            raise InvalidOption(
                "this policy has no identity that a stopping head could be for: export it anew, in float32"
            )
        if predictor.identity != self.config.policy:
            raise InvalidOption(
                f"the stopping head belongs to policy {self.config.policy}, over another tokenizer or with other "
                f"weights than this one, {predictor.identity}"
            )
        if executed not in (None, self.config.executed):
            raise InvalidOption(
                f"the stopping head is calibrated for {self.config.executed} executed actions, got {executed}"
            )

    def targets(
        self, errors: Float[Tensor, "*n"], drops: Float[Tensor, "*n"]
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Return errors and drops as the head gives them."""
        return (errors.clamp_min(_SMALLEST) / self.scale).log(), drops / self.scale

    def save(self, directory: Path, record: TrainingRecord) -> None:
        """Write a checkpoint directory that `load` reads anywhere."""
        card = ModelCard(
            title="Stopping head of an autoregressive policy",
            about="Predicts the error that a prefix of the policy's tokens has over the executed actions.",
            load=_LOAD,
            tags=("robotics", "robot-policy", KIND),
            shapes={name.replace("_", " "): str(value) for name, value in asdict(self.config).items()},
            ranges=(),
            record=record,
        )
        described = {"config": asdict(self.config), "trained_on": record.to_json()}
        with staged_checkpoint(directory, KIND) as staging:
            write_checkpoint(staging, KIND, described, self.state_dict(), card)

    @classmethod
    def load(cls, directory: str | Path) -> "ErrorHead":
        """Return the head of a checkpoint directory."""
        folder = Path(directory).expanduser()
        described, tensors = load_checkpoint(folder, (KIND,))
        try:
            config = config_from_json(HeadConfig, described["config"])
        except KeyError as error:
            raise CheckpointError(f"{folder} lacks {error}") from error
        head = build_bounded(folder, lambda: cls(config), tensors)
        check_shapes(folder, head.state_dict(), tensors)
        head.load_state_dict(tensors)
        return head.requires_grad_(False).eval()


def _inputs(state: RowState) -> tuple[Tensor, Tensor, Tensor]:
    assert state.hidden is not None  # every runtime whose policy has an identity gives it
    tokens = torch.full_like(state.last, state.tokens)
    return state.hidden.float(), state.last, tokens
