"""k-means with many centres: our own forty lines, because scikit-learn would be needed for nothing else."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

_TIE = 1e-9
"""Squared distances that differ by less are equal: above what rounding does in float64."""
_POINTS_PER_CENTER = 32
"""Points of one iteration for each centre: more cost time, and move the centres little."""


def nearest(
    points: Float[Tensor, "points numbers"], centers: Float[Tensor, "centers numbers"], block: int = 1024
) -> Int64[Tensor, " points"]:
    """Return the number of the centre that is nearest to each point, computed a block of points at a time.

    Of centres that are equally near, the first: which of them rounding favours depends on the block's size.
    """
    lengths = centers.square().sum(1)
    found = [points.new_zeros(0, dtype=torch.int64)]
    for first in range(0, len(points), block):
        part = points[first : first + block]
        # |p − c|² without |p|², which is the same for all centres.
        distances = torch.addmm(lengths, part, centers.T, alpha=-2)
        as_near = distances <= distances.amin(1, keepdim=True) + _TIE
        found.append(as_near.int().argmax(1))  # of equal values argmax gives the first
    return torch.cat(found)


def kmeans(
    points: Float[Tensor, "points numbers"], count: int, iterations: int, generator: torch.Generator
) -> Float[Tensor, "count numbers"]:
    """Return centres that lie where the points do, by Lloyd's iterations from points drawn at random.

    A centre without points begins again at one of them. Where there are fewer points than centres, some are equal.
    """

    def draw(number: int) -> Int64[Tensor, " number"]:
        if number > len(points):
            return torch.randint(len(points), (number,), generator=generator)
        return torch.randperm(len(points), generator=generator)[:number]

    centers = points[draw(count)].clone()
    for _ in range(iterations):
        some = points[draw(min(len(points), _POINTS_PER_CENTER * count))]
        owners = nearest(some, centers)
        sizes = torch.bincount(owners, minlength=count)
        sums = torch.zeros_like(centers).index_add_(0, owners, some)
        centers = sums / sizes.clamp_min(1)[:, None]
        empty = sizes == 0
        centers[empty] = points[draw(int(empty.sum()))]
    return centers
