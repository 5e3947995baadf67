"""Several action transforms, applied one after the other."""

from dataclasses import dataclass
from typing import ClassVar

from oat.data.transforms.transform import Actions, ActionTransform, State, Transformed
from oat.errors import TransformError


@dataclass(frozen=True)
class Chain(ActionTransform):
    """Apply transforms one after the other, and their inverses in the opposite order."""

    kind: ClassVar[str] = "chain"
    steps: tuple[ActionTransform, ...]
    """The transforms, the first one applied first."""

    def __post_init__(self) -> None:
        if not isinstance(self.steps, tuple) or not all(isinstance(step, ActionTransform) for step in self.steps):
            raise TransformError(f"chain: steps must be a list of transforms, got {self.steps!r}")

    @property
    def state_key(self) -> str | None:
        """Return the one observation that the steps need; raise `TransformError` if they need different ones."""
        keys = {step.state_key for step in self.steps} - {None}
        if len(keys) > 1:
            raise TransformError(f"chain: its steps refer to different states, {sorted(map(str, keys))}")
        return next(iter(keys), None)

    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
        """Return the dimension after the last step, each of which is checked with the dimension before it."""
        for step in self.steps:
            action_dim = step.output_dim(action_dim, state_dim)
        return action_dim

    def forward(self, actions: Actions, state: State = None) -> Transformed:
        """Return the chunk after every step; all of them see the same state."""
        for step in self.steps:
            actions = step.forward(actions, state)
        return actions

    def inverse(self, actions: Transformed, state: State = None) -> Actions:
        """Return the chunk in action units, undoing the last step first."""
        for step in reversed(self.steps):
            actions = step.inverse(actions, state)
        return actions

    def check_values(self, actions: Actions, state: State = None) -> None:
        """Raise `TransformError` for values that a step could not restore, as they arrive at that step."""
        for step in self.steps:
            step.check_values(actions, state)  # of what this step receives, not of the original actions
            actions = step.forward(actions, state)
