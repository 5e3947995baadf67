"""The interface of every action transform: a map of action chunks with an exact inverse."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

Chunk = Float[Tensor, "batch time dim"]
Transformed = Float[Tensor, "batch time transformed"]
State = Float[Tensor, "batch state_dim"] | None


class ActionTransform(ABC):
    """Map action chunks to model space and back, exactly inside the transform's domain.

    A kind is a frozen dataclass: its fields are its options, on the command line and in every checkpoint.
    """

    kind: ClassVar[str]
    """The name in `TRANSFORMS`, which is also its text form and the "kind" of its configuration."""

    @property
    def state_key(self) -> str | None:
        """Return the observation whose current value the transform needs, or None if it needs none."""
        return None

    @abstractmethod
    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
        """Return the transformed action dimension; raise `TransformError` where the transform is undefined."""

    @abstractmethod
    def forward(self, actions: Chunk, state: State = None) -> Transformed:
        """Return the chunk in the space in which models work."""

    @abstractmethod
    def inverse(self, actions: Transformed, state: State = None) -> Chunk:
        """Return the chunk in action units; this undoes `forward` with the same state."""

    def check_values(self, actions: Chunk, state: State = None) -> None:  # noqa: B027 - most accept every value
        """Raise `TransformError` for actions that the inverse could not restore; run when statistics are fitted."""


@dataclass(frozen=True)
class Identity(ActionTransform):
    """Leave actions as they are, which is the default."""

    kind: ClassVar[str] = "identity"

    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
        """Return the action dimension itself, for which every value is allowed."""
        return action_dim

    def forward(self, actions: Chunk, state: State = None) -> Transformed:
        """Return the very tensor that was given, not a copy."""
        return actions

    def inverse(self, actions: Transformed, state: State = None) -> Chunk:
        """Return the very tensor that was given, not a copy."""
        return actions
