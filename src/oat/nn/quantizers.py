"""The quantizers by name: a new one is a file with a class and a line here."""

from collections.abc import Callable
from functools import partial

from oat.errors import unknown_name
from oat.nn.fsq import FSQ
from oat.nn.quantizer import Quantizer

QUANTIZERS: dict[str, Callable[[tuple[int, ...]], Quantizer]] = {
    "tanh": partial(FSQ, grid="tanh"),
    "symmetric": partial(FSQ, grid="symmetric"),
}
"""Each makes a quantizer for latents of these numbers of levels."""


def make_quantizer(name: str, levels: tuple[int, ...]) -> Quantizer:
    """Return a new quantizer by its name."""
    if name not in QUANTIZERS:
        raise unknown_name("quantizer", name, QUANTIZERS)
    return QUANTIZERS[name](levels)
