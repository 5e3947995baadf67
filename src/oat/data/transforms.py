"""Invertible action transforms at the border between data and model.

A transform maps a chunk of actions, given the current state, to the space in which statistics are computed and models
work, and back. It is a frozen value that is saved with every checkpoint (`to_config`, `from_config`). Dimensions that a
transform does not name, such as the gripper, pass through unchanged.
"""

import json
import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from oat.data.chunks import Batch
from oat.data.episodes import STATE
from oat.data.rotations import (
    axis_angle_to_matrix,
    matrix_to_axis_angle,
    matrix_to_quaternion,
    matrix_to_sixd,
    quaternion_to_matrix,
    sixd_to_matrix,
)
from oat.errors import InvalidOption, TransformError, unknown_name

Chunk = Float[Tensor, "batch time dim"]
Transformed = Float[Tensor, "batch time transformed"]
Chosen = Float[Tensor, "batch _ chosen"]
State = Float[Tensor, "batch state_dim"] | None


class ActionTransform(ABC):
    """A map of action chunks with an exact inverse inside its domain."""

    kind: ClassVar[str]

    @property
    def state_key(self) -> str | None:
        """The observation whose current value the transform needs, if any."""
        return None

    @abstractmethod
    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
        """The transformed action dimension; raises `TransformError` where the transform is undefined."""

    @abstractmethod
    def forward(self, actions: Chunk, state: State = None) -> Transformed: ...

    @abstractmethod
    def inverse(self, actions: Transformed, state: State = None) -> Chunk: ...

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint's config.json holds of the transform."""
        return to_config(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ActionTransform":
        """Return the transform of any kind that `to_json` described."""
        return from_config(values)

    def check_values(self, actions: Chunk, state: State = None) -> None:  # noqa: B027 - most accept every value
        """Raise `TransformError` for actions that the inverse could not restore; run when statistics are fitted."""


@dataclass(frozen=True)
class Identity(ActionTransform):
    """Actions as they are."""

    kind: ClassVar[str] = "identity"

    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
        return action_dim

    def forward(self, actions: Chunk, state: State = None) -> Transformed:
        return actions

    def inverse(self, actions: Transformed, state: State = None) -> Chunk:
        return actions


@dataclass(frozen=True)
class _Dimensionwise(ActionTransform):
    """Changes chosen dimensions, with the corresponding state dimensions as reference where it uses the state."""

    dims: tuple[int, ...] | None = None
    """Action dimensions to change; None for all."""
    state_dims: tuple[int, ...] | None = None
    """The state dimension that corresponds to each of them; None for the same numbers."""
    state: str = STATE
    """The observation that holds the state."""

    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
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

    def _chosen(self, actions: Chunk) -> Chosen:
        return actions if self.dims is None else actions[..., list(self.dims)]

    def _put(self, actions: Chunk, chosen: Chosen) -> Chunk:
        if self.dims is None:
            return chosen
        out = actions.clone()
        out[..., list(self.dims)] = chosen
        return out

    def __post_init__(self) -> None:
        for name, allowed in self._choices().items():
            if getattr(self, name) not in allowed:
                raise TransformError(f"{self.kind}: {name} must be {' or '.join(allowed)}, got {getattr(self, name)!r}")

    def _choices(self) -> dict[str, tuple[str, ...]]:
        """The allowed values of options that are words."""
        return {}

    def _reference(self, actions: Chunk, state: State) -> Chosen:
        """The current state's corresponding dimensions, (batch, 1, dims)."""
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
    """Offsets from the current state: a_t - s, the same s for the whole chunk."""

    kind: ClassVar[str] = "relative"

    @property
    def state_key(self) -> str | None:
        return self.state

    def forward(self, actions: Chunk, state: State = None) -> Transformed:
        return self._put(actions, self._chosen(actions) - self._reference(actions, state))

    def inverse(self, actions: Transformed, state: State = None) -> Chunk:
        return self._put(actions, self._chosen(actions) + self._reference(actions, state))


@dataclass(frozen=True)
class Delta(_Dimensionwise):
    """Step-to-step differences: a_t - a_{t-1}; the first step is kept, or taken from the state (`first_step`)."""

    kind: ClassVar[str] = "delta"
    first_step: Literal["keep", "from_state"] = "keep"

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {"first_step": ("keep", "from_state")}

    @property
    def state_key(self) -> str | None:
        return self.state if self.first_step == "from_state" else None

    def forward(self, actions: Chunk, state: State = None) -> Transformed:
        chosen = self._chosen(actions)
        before = torch.zeros_like(chosen[:, :1]) if self.state_key is None else self._reference(actions, state)
        return self._put(actions, torch.diff(chosen, dim=1, prepend=before))

    def inverse(self, actions: Transformed, state: State = None) -> Chunk:
        summed = self._chosen(actions).double().cumsum(1)  # double: rounding must not grow along the chunk
        if self.state_key is not None:
            summed = summed + self._reference(actions, state)
        return self._put(actions, summed.to(actions.dtype))


@dataclass(frozen=True)
class UnwrapAngles(_Dimensionwise):
    """Angles in [-period/2, period/2] made continuous along the chunk, starting near the state's angle if asked."""

    kind: ClassVar[str] = "unwrap_angles"
    period: float = 2 * math.pi
    first_step: Literal["keep", "near_state"] = "keep"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.period < math.inf:
            raise TransformError(f"{self.kind}: the period must be positive, got {self.period}")

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {"first_step": ("keep", "near_state")}

    @property
    def state_key(self) -> str | None:
        return self.state if self.first_step == "near_state" else None

    def forward(self, actions: Chunk, state: State = None) -> Transformed:
        chosen = self._chosen(actions)
        before = chosen[:, :1] if self.state_key is None else self._reference(actions, state)
        turns = -torch.round(torch.diff(chosen, dim=1, prepend=before) / self.period).cumsum(1)
        return self._put(actions, chosen + turns * self.period)

    def inverse(self, actions: Transformed, state: State = None) -> Chunk:
        chosen = self._chosen(actions)
        return self._put(actions, chosen - torch.round(chosen / self.period) * self.period)

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint's config.json holds of the transform."""
        return to_config(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ActionTransform":
        """Return the transform of any kind that `to_json` described."""
        return from_config(values)

    def check_values(self, actions: Chunk, state: State = None) -> None:
        largest = float(self._chosen(actions).abs().max())
        if largest > self.period / 2 * (1 + 1e-5):
            raise TransformError(
                f"{self.kind}: angles must lie within ±{self.period / 2:.6g}, found {largest:.6g}; leave out "
                "dimensions that are not wrapped, or give the period they are in"
            )


@dataclass(frozen=True)
class Rotation6D(ActionTransform):
    """A rotation vector or unit quaternion replaced by the first two columns of its matrix, which are continuous.

    https://arxiv.org/abs/1812.07035. The six numbers stand where the rotation stood. The inverse gives the canonical
    representation: rotation angle in [0, π], quaternion with w ≥ 0.
    """

    kind: ClassVar[str] = "rotation_6d"
    start: int = 3
    """The rotation's first dimension."""
    representation: Literal["axis_angle", "quaternion_xyzw", "quaternion_wxyz"] = "axis_angle"

    def __post_init__(self) -> None:
        allowed = ("axis_angle", "quaternion_xyzw", "quaternion_wxyz")
        if self.representation not in allowed:
            raise TransformError(f"{self.kind}: representation must be one of {allowed}, got {self.representation!r}")

    @property
    def _width(self) -> int:
        return 3 if self.representation == "axis_angle" else 4

    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
        if not 0 <= self.start <= action_dim - self._width:
            raise TransformError(
                f"{self.kind}: {self.representation} needs {self._width} dimensions from start={self.start}, "
                f"but actions have {action_dim}"
            )
        return action_dim - self._width + 6

    def forward(self, actions: Chunk, state: State = None) -> Transformed:
        before, rotation, after = actions.tensor_split((self.start, self.start + self._width), dim=-1)
        return torch.cat([before, matrix_to_sixd(self._to_matrix(rotation)), after], dim=-1)

    def inverse(self, actions: Transformed, state: State = None) -> Chunk:
        before, sixd, after = actions.tensor_split((self.start, self.start + 6), dim=-1)
        return torch.cat([before, self._from_matrix(sixd_to_matrix(sixd)), after], dim=-1)

    def _to_matrix(self, rotation: Tensor) -> Tensor:
        if self.representation == "axis_angle":
            return axis_angle_to_matrix(rotation)
        return quaternion_to_matrix(rotation.roll(1, -1) if self.representation == "quaternion_xyzw" else rotation)

    def _from_matrix(self, matrix: Tensor) -> Tensor:
        if self.representation == "axis_angle":
            return matrix_to_axis_angle(matrix)
        quaternion = matrix_to_quaternion(matrix)
        return quaternion.roll(-1, -1) if self.representation == "quaternion_xyzw" else quaternion

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint's config.json holds of the transform."""
        return to_config(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ActionTransform":
        """Return the transform of any kind that `to_json` described."""
        return from_config(values)

    def check_values(self, actions: Chunk, state: State = None) -> None:
        size = actions[..., self.start : self.start + self._width].norm(dim=-1)
        if self.representation == "axis_angle":
            if float(size.max()) > math.pi * (1 + 1e-4):
                raise TransformError(
                    f"{self.kind}: rotation vectors longer than π are ambiguous, found {size.max():.6g}"
                )
        elif float((size - 1).abs().max()) > 1e-3:
            raise TransformError(
                f"{self.kind}: quaternions must have length 1, found {size.min():.4g}…{size.max():.4g}"
            )


@dataclass(frozen=True)
class Chain(ActionTransform):
    """Transforms one after the other."""

    kind: ClassVar[str] = "chain"
    steps: tuple[ActionTransform, ...] = ()

    @property
    def state_key(self) -> str | None:
        keys = {step.state_key for step in self.steps} - {None}
        if len(keys) > 1:
            raise TransformError(f"chain: its steps refer to different states, {sorted(map(str, keys))}")
        return next(iter(keys), None)

    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
        for step in self.steps:
            action_dim = step.output_dim(action_dim, state_dim)
        return action_dim

    def forward(self, actions: Chunk, state: State = None) -> Transformed:
        for step in self.steps:
            actions = step.forward(actions, state)
        return actions

    def inverse(self, actions: Transformed, state: State = None) -> Chunk:
        for step in reversed(self.steps):
            actions = step.inverse(actions, state)
        return actions

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint's config.json holds of the transform."""
        return to_config(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ActionTransform":
        """Return the transform of any kind that `to_json` described."""
        return from_config(values)

    def check_values(self, actions: Chunk, state: State = None) -> None:
        for step in self.steps:
            step.check_values(actions, state)
            actions = step.forward(actions, state)


TRANSFORMS: dict[str, type[ActionTransform]] = {
    transform.kind: transform for transform in (Identity, Relative, Delta, UnwrapAngles, Rotation6D, Chain)
}


def to_config(transform: ActionTransform) -> dict[str, Any]:
    """A JSON-able description."""
    if isinstance(transform, Chain):
        return {"kind": transform.kind, "steps": [to_config(step) for step in transform.steps]}
    return {"kind": transform.kind, **asdict(transform)}  # type: ignore[call-overload]  # every kind is a dataclass


def from_config(config: dict[str, Any]) -> ActionTransform:
    """The transform that `to_config` described."""
    fields = dict(config)
    kind = fields.pop("kind", "")
    if kind not in TRANSFORMS:
        raise unknown_name("action transform", kind, TRANSFORMS)
    try:
        if kind == Chain.kind:
            return Chain(tuple(from_config(step) for step in fields["steps"]))
        return TRANSFORMS[kind](**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
    except (TypeError, KeyError) as error:
        raise TransformError(f"{kind}: {error}") from error


def parse(text: str) -> ActionTransform:
    """A transform from its kind, or from JSON with its options."""
    if not text.lstrip().startswith("{"):
        return from_config({"kind": text})
    try:
        return from_config(json.loads(text))
    except json.JSONDecodeError as error:
        raise TransformError(f"{text!r} is neither a transform's name nor JSON ({error})") from error


def transform_inputs(
    batch: Batch, transform: ActionTransform, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor, Tensor | None]:
    """A batch's actions, which of them are real, and the latest frame of the state that the transform refers to."""
    key = transform.state_key
    if key is not None and key not in batch.observations:
        raise InvalidOption(f"the windows must read {key!r}, which the action transform refers to")
    state = None if key is None else torch.from_numpy(batch.observations[key][:, -1]).to(device)
    return torch.from_numpy(batch.actions).to(device), torch.from_numpy(batch.valid_mask).to(device), state
