"""The chunks that a tokenizer or a policy is for, and how they are brought to model space."""

from dataclasses import dataclass, field
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from oat.data.normalize import Normalizer
from oat.data.transforms import ActionTransform, Identity
from oat.errors import InvalidOption
from oat.io.added_fields import added

INPUTS = ("actions", "normalized")
"""What chunks are given in: the units of the demonstrations, or those of a program that normalises them before."""
_LARGEST = 4096  # a minute of actions at 68 Hz; what is computed for a chunk may grow with the square of its length


@dataclass(frozen=True)
class ActionSpace:
    """Describe the chunks that a tokenizer or a policy is for: their shape, and what precedes normalisation."""

    action_horizon: int = 32
    """H_a: actions per chunk."""
    action_dim: int = 4
    """D_a: numbers per action, as in the data."""
    transform: ActionTransform = field(default_factory=Identity)
    """Transform of actions that is applied before normalisation; statistics are computed after it."""
    state_dim: int | None = None
    """Numbers in the state that the transform refers to, if any."""
    inputs: Literal["actions", "normalized"] = added("actions")
    """What chunks are given in."""

    def __post_init__(self) -> None:
        if not (1 <= self.action_horizon <= _LARGEST and 1 <= self.action_dim <= _LARGEST):
            raise InvalidOption(
                f"a chunk has 1…{_LARGEST} actions of 1…{_LARGEST} numbers, "
                f"got {self.action_horizon} × {self.action_dim}"
            )

    @property
    def model_dim(self) -> int:
        """Return the numbers per action in model space."""
        return self.transform.output_dim(self.action_dim, self.state_dim)

    def to_actions(
        self,
        chunk: Float[Tensor, "batch time numbers"],
        normalizer: Normalizer,
        state: Float[Tensor, "batch state"] | None,
    ) -> Float[Tensor, "batch time action"]:
        """Return a chunk of model space in the robot's units, within the range of the data: networks may overshoot."""
        bounded = chunk.clamp(normalizer.low, normalizer.high)
        return self.transform.inverse(normalizer.denormalize(bounded), state)
