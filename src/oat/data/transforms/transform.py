"""The interface of every action transform: a map of action chunks with an exact inverse."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from oat.errors import TransformError, unknown_name

Actions = Float[Tensor, "batch time dim"]
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
    def forward(self, actions: Actions, state: State = None) -> Transformed:
        """Return the chunk in the space in which models work."""

    @abstractmethod
    def inverse(self, actions: Transformed, state: State = None) -> Actions:
        """Return the chunk in action units; this undoes `forward` with the same state."""

    def check_values(self, actions: Actions, state: State = None) -> None:  # noqa: B027 - most accept every value
        """Raise `TransformError` for actions that the inverse could not restore; run when statistics are fitted."""

    def to_json(self) -> dict[str, Any]:
        """Return the transform's kind and options as values that JSON can hold, for a checkpoint's config.json."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind} | {name: _to_json(value) for name, value in options.items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ActionTransform":
        """Return the transform, of any kind, that `to_json` described; options left out have their defaults."""
        from oat.data.transforms import TRANSFORMS  # here, because every kind in it builds on this class

        kind = values.get("kind", "")
        if not isinstance(kind, str) or kind not in TRANSFORMS:
            raise unknown_name("action transform", str(kind), TRANSFORMS)
        options = {name: _from_json(value) for name, value in values.items() if name != "kind"}
        try:
            return TRANSFORMS[kind](**options)
        except TypeError as error:
            raise TransformError(f"{kind}: {error}") from error


def _to_json(value: Any) -> Any:
    """Return an option's value for JSON; transforms may lie inside transforms, as in a chain."""
    if isinstance(value, ActionTransform):
        return value.to_json()
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def _from_json(value: Any) -> Any:
    """Return an option's value from JSON, whose lists become tuples because transforms are hashable values."""
    if isinstance(value, dict) and "kind" in value:
        return ActionTransform.from_json(value)
    return tuple(_from_json(item) for item in value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Identity(ActionTransform):
    """Leave actions as they are, which is the default."""

    kind: ClassVar[str] = "identity"

    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
        """Return the action dimension itself, for which every value is allowed."""
        return action_dim

    def forward(self, actions: Actions, state: State = None) -> Transformed:
        """Return the very tensor that was given, not a copy."""
        return actions

    def inverse(self, actions: Transformed, state: State = None) -> Actions:
        """Return the very tensor that was given, not a copy."""
        return actions
