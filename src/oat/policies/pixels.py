"""Images as other libraries hand them over, channels first and in [0, 1], turned into those that policies see."""

import torch
from jaxtyping import Shaped, UInt8
from torch import Tensor
from torch.nn import functional as F


def to_pixels(
    images: Shaped[Tensor, "*n 3 height width"], size: tuple[int, int]
) -> UInt8[Tensor, "*n _height _width 3"]:
    """Return images as uint8 with the channels last; those of another size are averaged to this height and width."""
    scaled = images.float() if images.dtype == torch.uint8 else 255 * images.float()
    flat = scaled.reshape(-1, *images.shape[-3:])
    if tuple(flat.shape[-2:]) != size:
        flat = F.interpolate(flat, size=size, mode="area")
    pixels = flat.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
    return pixels.reshape(*images.shape[:-3], *pixels.shape[1:])
