"""Rotations as vectors (axis · angle), unit quaternions (w, x, y, z), matrices and their first two columns."""

import torch
from jaxtyping import Float
from torch import Tensor

_TINY = 1e-12


def axis_angle_to_matrix(vector: Float[Tensor, "*n 3"]) -> Float[Tensor, "*n 3 3"]:
    """Return exp of the skew matrix of `vector`, through the quaternion (cos θ/2, axis · sin θ/2)."""
    half = 0.5 * vector.norm(dim=-1, keepdim=True)
    scaled = 0.5 * vector * torch.sinc(half / torch.pi)  # sin(half) / half, also at 0
    return quaternion_to_matrix(torch.cat([half.cos(), scaled], dim=-1))


def matrix_to_axis_angle(matrix: Float[Tensor, "*n 3 3"]) -> Float[Tensor, "*n 3"]:
    """Return the rotation vector with angle in [0, π]."""
    quaternion = matrix_to_quaternion(matrix)
    w = quaternion[..., :1]
    xyz = quaternion[..., 1:]
    sine = xyz.norm(dim=-1, keepdim=True)
    half = torch.atan2(sine, w)
    return 2 * xyz / torch.sinc(half / torch.pi).clamp_min(_TINY)


def quaternion_to_matrix(quaternion: Float[Tensor, "*n 4"]) -> Float[Tensor, "*n 3 3"]:
    """Return the matrix of a quaternion (w, x, y, z), which is normalised first."""
    w, x, y, z = torch.nn.functional.normalize(quaternion, dim=-1).unbind(-1)
    rows = [
        *(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        *(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        *(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    ]
    return torch.stack(rows, dim=-1).reshape(*w.shape, 3, 3)


def matrix_to_quaternion(matrix: Float[Tensor, "*n 3 3"]) -> Float[Tensor, "*n 4"]:
    """Return the quaternion (w, x, y, z) with w ≥ 0.

    The four products of each component with (w, x, y, z) follow from sums and differences of the matrix's entries;
    the component that is largest is never near zero, so dividing by it is stable.
    """
    m = matrix
    d0, d1, d2 = m.diagonal(dim1=-2, dim2=-1).unbind(-1)
    wx = m[..., 2, 1] - m[..., 1, 2]
    wy = m[..., 0, 2] - m[..., 2, 0]
    wz = m[..., 1, 0] - m[..., 0, 1]
    xy = m[..., 0, 1] + m[..., 1, 0]
    xz = m[..., 0, 2] + m[..., 2, 0]
    yz = m[..., 1, 2] + m[..., 2, 1]
    products = torch.stack(
        [
            torch.stack([1 + d0 + d1 + d2, wx, wy, wz], dim=-1),
            torch.stack([wx, 1 + d0 - d1 - d2, xy, xz], dim=-1),
            torch.stack([wy, xy, 1 - d0 + d1 - d2, yz], dim=-1),
            torch.stack([wz, xz, yz, 1 - d0 - d1 + d2], dim=-1),
        ],
        dim=-2,
    )  # (*n, component, 4): row c is 4 · q_c · (w, x, y, z)
    largest = products.diagonal(dim1=-2, dim2=-1).argmax(dim=-1)
    row = products.gather(-2, largest[..., None, None].expand(*largest.shape, 1, 4)).squeeze(-2)
    quaternion = torch.nn.functional.normalize(row, dim=-1)
    return torch.where(quaternion[..., :1] < 0, -quaternion, quaternion)


def matrix_to_sixd(matrix: Float[Tensor, "*n 3 3"]) -> Float[Tensor, "*n 6"]:
    """Return the first two columns of a matrix, one after the other."""
    return torch.cat([matrix[..., :, 0], matrix[..., :, 1]], dim=-1)


def sixd_to_matrix(sixd: Float[Tensor, "*n 6"]) -> Float[Tensor, "*n 3 3"]:
    """Return the rotation whose first two columns are two vectors after Gram–Schmidt; they must be independent."""
    first = sixd[..., :3]
    second = sixd[..., 3:]
    x = torch.nn.functional.normalize(first, dim=-1)
    y = torch.nn.functional.normalize(second - (x * second).sum(-1, keepdim=True) * x, dim=-1)
    return torch.stack([x, y, torch.linalg.cross(x, y, dim=-1)], dim=-1)
