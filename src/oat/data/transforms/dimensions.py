"""Transforms of chosen action dimensions: relative to the state, from step to step, and of angles that wrap around."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from oat.data.episodes import STATE
from oat.data.transforms.transform import Actions, ActionTransform, State, Transformed
from oat.errors import TransformError

Chosen = Float[Tensor, "batch _ chosen"]


@dataclass(frozen=True)
class _Dimensionwise(ActionTransform):
    """Change chosen dimensions, with the corresponding state dimensions as reference where a kind uses the state."""

    dims: tuple[int, ...] | None = None
    """Action dimensions to change; None for all."""
    state_dims: tuple[int, ...] | None = None
    """The state dimension that corresponds to each of them; None for the same numbers."""
    state: str = STATE
    """The observation that holds the state."""

    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
        """Return the action dimension itself; raise `TransformError` unless the dims and state dims exist."""
        dims = tuple(range(action_dim)) if self.dims is None else self.dims
        if len(set(dims)) != len(dims) or any(not 0 <= d < action_dim for d in dims):
            raise TransformError(f"{self.kind}: dims must be distinct and in 0…{action_dim - 1}, got {dims}")
        if self.state_key is not None:
            self._check_state(dims, action_dim, state_dim)
        return action_dim

    def _check_state(self, dims: tuple[int, ...], action_dim: int, state_dim: int | None) -> None:
        if state_dim is None:
            raise TransformError(f"{self.kind} needs the current state ({self.state}), which this data does not have")
        if self.dims is None and self.state_dims is None and state_dim != action_dim:
            raise TransformError(
                f"{self.kind}: {self.state} has {state_dim} dimensions and actions {action_dim}, so they do not "
                "correspond; name the dims to change and the state_dims they refer to"
            )
        state_dims = dims if self.state_dims is None else self.state_dims
        if len(state_dims) != len(dims) or any(not 0 <= d < state_dim for d in state_dims):
            raise TransformError(
                f"{self.kind}: needs {len(dims)} state_dims in 0…{state_dim - 1}, one for each dim, got {state_dims}"
            )

    def _chosen(self, actions: Actions) -> Chosen:
        return actions if self.dims is None else actions[..., list(self.dims)]

    def _put(self, actions: Actions, chosen: Chosen) -> Actions:
        if self.dims is None:
            return chosen
        out = actions.clone()  # the caller's actions must not change
        out[..., list(self.dims)] = chosen
        return out

    def __post_init__(self) -> None:
        for name, allowed in self._choices().items():
            if getattr(self, name) not in allowed:
                raise TransformError(f"{self.kind}: {name} must be {' or '.join(allowed)}, got {getattr(self, name)!r}")

    def _choices(self) -> dict[str, tuple[str, ...]]:
        """Return the allowed values of each option that is a word."""
        return {}

    def _reference(self, actions: Actions, state: State) -> Chosen:
        """Return the current state's corresponding dimensions, (batch, 1, dims)."""
        if state is None:
            raise TransformError(f"{self.kind} needs the current state ({self.state})")
        dims = self.state_dims if self.state_dims is not None else self.dims
        chosen = state if dims is None else state[:, list(dims)]
        width = actions.shape[-1] if self.dims is None else len(self.dims)
        if chosen.shape[1] != width:
            raise TransformError(f"{self.kind}: {width} action dimensions and {chosen.shape[1]} of {self.state}")
        return chosen[:, None].to(actions.dtype)


@dataclass(frozen=True)
class Relative(_Dimensionwise):
    """Express actions as offsets from the current state: a_t - s, the same s for the whole chunk."""

    kind: ClassVar[str] = "relative"

    @property
    def state_key(self) -> str | None:
        """Return the observation that holds the state, which every chunk is relative to."""
        return self.state

    def forward(self, actions: Actions, state: State = None) -> Transformed:
        """Return a_t - s in the chosen dimensions."""
        return self._put(actions, self._chosen(actions) - self._reference(actions, state))

    def inverse(self, actions: Transformed, state: State = None) -> Actions:
        """Return a_t = (a_t - s) + s in the chosen dimensions."""
        return self._put(actions, self._chosen(actions) + self._reference(actions, state))


@dataclass(frozen=True)
class Delta(_Dimensionwise):
    """Express actions as differences from step to step: a_t - a_{t-1}."""

    kind: ClassVar[str] = "delta"
    first_step: Literal["keep", "from_state"] = "keep"
    """Whether the first step stays as it is or becomes its difference from the current state."""

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {"first_step": ("keep", "from_state")}

    @property
    def state_key(self) -> str | None:
        """Return the observation that holds the state if the first step is a difference from it."""
        return self.state if self.first_step == "from_state" else None

    def forward(self, actions: Actions, state: State = None) -> Transformed:
        """Return a_t - a_{t-1} in the chosen dimensions, where a_{-1} is the state or 0."""
        chosen = self._chosen(actions)
        before = torch.zeros_like(chosen[:, :1]) if self.state_key is None else self._reference(actions, state)
        return self._put(actions, torch.diff(chosen, dim=1, prepend=before))

    def inverse(self, actions: Transformed, state: State = None) -> Actions:
        """Return the running sums of the differences, starting from the state or 0."""
        summed = self._chosen(actions).double().cumsum(1)  # double: rounding must not grow along the chunk
        if self.state_key is not None:
            summed = summed + self._reference(actions, state)
        return self._put(actions, summed.to(actions.dtype))


@dataclass(frozen=True)
class UnwrapAngles(_Dimensionwise):
    """Make angles in [-period/2, period/2] continuous along the chunk, so that a turn across ±π has no jump."""

    kind: ClassVar[str] = "unwrap_angles"
    period: float = 2 * math.pi
    """A full turn, 360 for degrees."""
    first_step: Literal["keep", "near_state"] = "keep"
    """Whether the first angle stays as it is or is moved by whole turns to lie near the state's angle."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.period < math.inf:
            raise TransformError(f"{self.kind}: the period must be positive, got {self.period}")

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {"first_step": ("keep", "near_state")}

    @property
    def state_key(self) -> str | None:
        """Return the observation that holds the state if the first angle is to lie near it."""
        return self.state if self.first_step == "near_state" else None

    def forward(self, actions: Actions, state: State = None) -> Transformed:
        """Return angles moved by whole turns so that no step is longer than half a turn."""
        chosen = self._chosen(actions)
        before = chosen[:, :1] if self.state_key is None else self._reference(actions, state)
        turns = -torch.round(torch.diff(chosen, dim=1, prepend=before) / self.period).cumsum(1)
        return self._put(actions, chosen + turns * self.period)

    def inverse(self, actions: Transformed, state: State = None) -> Actions:
        """Return angles wrapped into [-period/2, period/2] again, which needs no state."""
        chosen = self._chosen(actions)
        return self._put(actions, chosen - torch.round(chosen / self.period) * self.period)

    def check_values(self, actions: Actions, state: State = None) -> None:
        """Raise `TransformError` for angles beyond half a turn, which the inverse would wrap."""
        largest = float(self._chosen(actions).abs().max())
        if largest > self.period / 2 * (1 + 1e-5):  # ±π itself is rounded in float32
            raise TransformError(
                f"{self.kind}: angles must lie within ±{self.period / 2:.6g}, found {largest:.6g}; leave out "
                "dimensions that are not wrapped, or give the period they are in"
            )
