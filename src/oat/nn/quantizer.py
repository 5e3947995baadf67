"""What every quantizer is: it turns latent numbers into token ids and back."""

from abc import ABC, abstractmethod

from jaxtyping import Float, Int64
from torch import Tensor, nn


class Quantizer(nn.Module, ABC):
    """Replace each latent vector by one of `vocab_size` codes.

    The work is in two parts: `position` brings latents to the quantizer's own space, in which `encode` decides for a
    code and `margin` tells how near the decision was.
    """

    @property
    @abstractmethod
    def dim(self) -> int:
        """Return how many numbers a latent vector has."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Return how many codes there are."""

    @abstractmethod
    def position(self, latents: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return where latents lie in the space in which they are compared with codes; at least float32."""

    @abstractmethod
    def values(self, positions: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return positions as the numbers that a decoder reads, not rounded to codes."""

    @abstractmethod
    def forward(self, latents: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return the codes' values with the gradient of the latents' own (straight through)."""

    @abstractmethod
    def encode(self, positions: Float[Tensor, "*n dim"]) -> Int64[Tensor, "*n"]:
        """Return the id of the code that each position is replaced by."""

    @abstractmethod
    def decode(self, ids: Int64[Tensor, "*n"]) -> Float[Tensor, "*n dim"]:
        """Return the codes' values."""

    def levels_of(self, ids: Int64[Tensor, "*n"]) -> Int64[Tensor, "*n dim"] | None:
        """Return the level of each of a code's numbers where codes lie on a lattice, as those of FSQ do."""
        return None

    @abstractmethod
    def margin(self, positions: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n"]:
        """Return how far each position is from where another code would be chosen.

        Rounding errors move positions by about 1e-6; what is nearer than 1e-4 is decided again in double precision.
        """
