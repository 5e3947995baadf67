"""The size of a transformer block, apart from the blocks themselves: configurations need it without importing torch."""

from dataclasses import dataclass

from oat.errors import InvalidOption


@dataclass(frozen=True)
class Width:
    """Hold the size of a transformer block: its dimension, and that of its heads."""

    dim: int = 256
    """Model dimension, a multiple of the head dimension."""
    head_dim: int = 64
    """Dimension of each attention head."""

    def __post_init__(self) -> None:
        if min(self.dim, self.head_dim) < 1 or self.dim % self.head_dim:
            raise InvalidOption(
                f"the model dimension {self.dim} must be a multiple of the head dimension {self.head_dim}"
            )

    @property
    def heads(self) -> int:
        """Return the number of attention heads."""
        return self.dim // self.head_dim
