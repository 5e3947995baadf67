"""Per-dimension binning (paper, section III-A): one token for every number of the chunk, time-major."""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from oat.errors import InvalidOption
from oat.tokenizers.tokenizer import ActionSpace, ActionTokenizer
from oat.tokenizers.tokens import Tokens


@dataclass(frozen=True)
class BinConfig:
    """How finely to bin."""

    bins: int = 256
    """N: bins per dimension over its fitted range, and the vocabulary."""

    def __post_init__(self) -> None:
        if self.bins < 2:
            raise InvalidOption(f"at least 2 bins are needed, got {self.bins}")


class BinTokenizer(ActionTokenizer):
    """N uniform bins per dimension, decoded to their centres. Steps past an episode's end are binned like any other."""

    kind = "bin"
    config_class = BinConfig

    def __init__(self, space: ActionSpace, config: BinConfig | None = None) -> None:
        super().__init__(space)
        self.config = config or BinConfig()

    @property
    def vocab_size(self) -> int:
        return self.config.bins

    @property
    def max_tokens(self) -> int:
        return self.action_horizon * self.space.model_dim

    def encode_normalized(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Tokens:
        low, high = self.normalizer.low, self.normalizer.high
        fraction = (actions - low) / (high - low).clamp_min(1e-12)
        ids = (fraction * self.config.bins).long().clamp(0, self.config.bins - 1)
        flat = rearrange(ids, "b t d -> b (t d)")
        return Tokens(flat, torch.full((len(flat),), flat.shape[1], device=flat.device))

    def decode_normalized(
        self, tokens: Tokens, steps: int, noise: Float[Tensor, "batch time dim"] | None = None
    ) -> tuple[Float[Tensor, "batch steps dim"], Bool[Tensor, " batch"]]:
        ids = rearrange(tokens.ids, "b (t d) -> b t d", t=self.action_horizon)[:, :steps]
        low, high = self.normalizer.low, self.normalizer.high
        centers = low + (ids + 0.5) / self.config.bins * (high - low)
        return centers, torch.ones(ids.shape[0], dtype=torch.bool, device=ids.device)
