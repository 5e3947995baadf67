"""Show a motion in one picture: several frames laid over each other, cropped to what moves."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

Picture = UInt8[np.ndarray, "size size 3"]

_MOVED = 24  # of 255: a pixel that changes by more shows something that moved
_LAST_WEIGHT = 3.0  # how much more the last moment counts, in which it is seen where the motion ends
_MARGIN = 1.3  # of the square's side over the extent of the motion


def overlay_frames(frames: Sequence[Picture]) -> Picture:
    """Average several moments into one picture; later ones are stronger, and the last one is the strongest."""
    weights = np.linspace(1, 2, len(frames))
    weights[-1] *= _LAST_WEIGHT
    return np.average(np.stack(frames), axis=0, weights=weights).round().astype(np.uint8)


def motion_square(frames: Sequence[Picture]) -> tuple[slice, slice]:
    """Return rows and columns of the square in which anything moves, with some of what is around it."""
    size = frames[0].shape[0]
    places = np.argwhere(np.ptp(np.stack(frames), axis=0).max(-1) > _MOVED)
    if len(places) == 0:
        return slice(None), slice(None)
    # Quantiles instead of extremes: a single flickering pixel must not widen the picture.
    low, high = np.quantile(places, (0.01, 0.99), axis=0)
    side = min(_MARGIN * (high - low).max(), size)
    corner = np.clip((low + high - side) / 2, 0, size - side).astype(int)
    rows, columns = (slice(first, first + int(side)) for first in corner.tolist())
    return rows, columns
