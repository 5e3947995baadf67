"""Rotations among the action dimensions, in a representation without jumps (https://arxiv.org/abs/1812.07035)."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from oat.data.rotations import (
    axis_angle_to_matrix,
    matrix_to_axis_angle,
    matrix_to_quaternion,
    matrix_to_sixd,
    quaternion_to_matrix,
    sixd_to_matrix,
)
from oat.data.transforms.transform import Actions, ActionTransform, State, Transformed
from oat.errors import TransformError


@dataclass(frozen=True)
class Rotation6D(ActionTransform):
    """Replace a rotation vector or unit quaternion by the first two columns of its matrix, which are continuous.

    The six numbers stand where the rotation stood. The inverse gives the canonical representation: rotation angle in
    [0, π], quaternion with w ≥ 0.
    """

    kind: ClassVar[str] = "rotation_6d"
    start: int = 3
    """The rotation's first dimension."""
    representation: Literal["axis_angle", "quaternion_xyzw", "quaternion_wxyz"] = "axis_angle"
    """How the actions hold the rotation."""

    def __post_init__(self) -> None:
        allowed = ("axis_angle", "quaternion_xyzw", "quaternion_wxyz")
        if self.representation not in allowed:
            raise TransformError(f"{self.kind}: representation must be one of {allowed}, got {self.representation!r}")

    @property
    def _width(self) -> int:
        return 3 if self.representation == "axis_angle" else 4

    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
        """Return the dimension with six numbers in place of three or four; raise if the rotation does not fit."""
        if not 0 <= self.start <= action_dim - self._width:
            raise TransformError(
                f"{self.kind}: {self.representation} needs {self._width} dimensions from start={self.start}, "
                f"but actions have {action_dim}"
            )
        return action_dim - self._width + 6

    def forward(self, actions: Actions, state: State = None) -> Transformed:
        """Return the chunk with the rotation's first two matrix columns in its place."""
        before, rotation, after = actions.tensor_split((self.start, self.start + self._width), dim=-1)
        return torch.cat([before, matrix_to_sixd(self._to_matrix(rotation)), after], dim=-1)

    def inverse(self, actions: Transformed, state: State = None) -> Actions:
        """Return the chunk with the rotation in its own representation; the six numbers need not be orthonormal."""
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

    def check_values(self, actions: Actions, state: State = None) -> None:
        """Raise `TransformError` for rotation vectors longer than π and quaternions of another length than 1."""
        size = actions[..., self.start : self.start + self._width].norm(dim=-1)
        if self.representation == "axis_angle":
            # Recorded half turns are rounded to float32 and may lie a little above π.
            if float(size.max()) > math.pi * (1 + 1e-4):
                raise TransformError(
                    f"{self.kind}: rotation vectors longer than π are ambiguous, found {size.max():.6g}"
                )
        elif float((size - 1).abs().max()) > 1e-3:
            raise TransformError(
                f"{self.kind}: quaternions must have length 1, found {size.min():.4g}…{size.max():.4g}"
            )
