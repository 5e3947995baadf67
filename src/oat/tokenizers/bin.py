"""Per-dimension binning (paper, section III-A): one token for every number of the chunk, time-major."""

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.config import BinConfig
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens


class BinTokenizer(BaseTokenizer):
    """Cut each dimension into N uniform bins; a token decodes to its bin's centre.

    Steps past an episode's end are binned like any other.
    """

    kind = "bin"
    config_class = BinConfig
    caches_tokens = False  # they are cheaper to compute than to store

    def __init__(self, space: ActionSpace, config: BinConfig | None = None) -> None:
        super().__init__(space)
        self.config = config or BinConfig()

    @property
    def vocab_size(self) -> int:
        """Return the number of bins, which all dimensions share."""
        return self.config.bins

    @property
    def max_tokens(self) -> int:
        """Return the numbers of a chunk: each has a token of its own."""
        return self.action_horizon * self.space.model_dim

    def levels_of(self, ids: Int64[Tensor, "*n"]) -> Int64[Tensor, "*n 1"]:
        """Return the bins' numbers, which lie on one axis."""
        return ids[..., None]

    def encode_normalized(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Tokens:
        """Return each number's bin, the chunk's first action first."""
        low = self.normalizer.low
        high = self.normalizer.high
        # A dimension that never moves has no range: all its numbers then fall into the first bin.
        fraction = (actions - low) / (high - low).clamp_min(1e-12)
        # The range's upper end would be bin N, which does not exist: it belongs to the last one.
        ids = (fraction * self.config.bins).long().clamp(0, self.config.bins - 1)
        flat = rearrange(ids, "b t d -> b (t d)")
        return Tokens(flat, torch.full((len(flat),), flat.shape[1], device=flat.device))

    def decode_normalized(
        self, tokens: Tokens, num_actions: int, noise: Float[Tensor, "batch time dim"] | None = None
    ) -> tuple[Float[Tensor, "batch num_actions dim"], Bool[Tensor, " batch"]]:
        """Return the centres of the bins that the tokens name."""
        # Time-major, so that the first actions are the first tokens, and no others need to be looked at.
        ids = rearrange(tokens.ids, "b (t d) -> b t d", t=self.action_horizon)[:, :num_actions]
        low = self.normalizer.low
        high = self.normalizer.high
        centers = low + (ids + 0.5) / self.config.bins * (high - low)
        return centers, torch.ones(ids.shape[0], dtype=torch.bool, device=ids.device)
