"""QueST (https://arxiv.org/abs/2407.15840; paper, section V-A1): temporal convolutions, then a causal transformer."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from oat.errors import InvalidOption
from oat.nn.transformer import EncoderBlock, make_norm, sinusoidal_positions
from oat.tokenizers.autoencoder import AutoencoderTokenizer
from oat.tokenizers.config import DOWNSAMPLING, QueSTConfig
from oat.tokenizers.space import ActionSpace


class ConvolutionalEncoder(nn.Module):
    """Apply two causal convolutions of stride 2, then transformer blocks in which token i sees tokens j ≤ i."""

    positions: Tensor

    def __init__(self, space: ActionSpace, config: QueSTConfig, latent_dim: int) -> None:
        super().__init__()
        width = config.width.dim
        self.kernel = config.kernel
        self.convolutions = nn.ModuleList(
            [
                nn.Conv1d(space.model_dim, width, config.kernel, stride=2),
                nn.Conv1d(width, width, config.kernel, stride=2),
            ]
        )
        self.blocks = nn.ModuleList(EncoderBlock(config.width) for _ in range(config.encoder_layers))
        self.norm = make_norm(width)
        self.to_latent = nn.Linear(width, latent_dim)
        self.register_buffer("positions", sinusoidal_positions(config.latent_horizon, width), persistent=False)

    def forward(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch tokens latent"]:
        """Return one latent vector for every four steps."""
        x = (actions * valid_mask[..., None]).mT  # invented steps are silent
        for convolution in self.convolutions:
            # Padded on the left only: output i sees steps up to 2i + 1, and there are exactly half as many.
            x = F.gelu(convolution(F.pad(x, (self.kernel - 2, 0))))
        x = x.mT + self.positions
        tokens = x.shape[1]
        causal = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).tril()
        for block in self.blocks:
            x = block(x, causal[None, None])
        return self.to_latent(self.norm(x))


class QueSTTokenizer(AutoencoderTokenizer):
    """Give unordered tokens, one for every four steps; only whole sequences decode."""

    kind = "quest"
    config_class = QueSTConfig
    config: QueSTConfig

    def __init__(self, space: ActionSpace, config: QueSTConfig | None = None) -> None:
        config = config or QueSTConfig().for_horizon(space.action_horizon)
        if space.action_horizon != DOWNSAMPLING * config.latent_horizon:
            raise InvalidOption(
                f"QueST makes one token of {DOWNSAMPLING} steps: a horizon of {space.action_horizon} cannot give "
                f"{config.latent_horizon} tokens"
            )
        # `WholeSequenceObjective` has it, but whoever builds a configuration in Python may say otherwise.
        if config.objective.keep != "full":
            raise InvalidOption('QueST has no ordering to train: its objective must have keep="full"')
        super().__init__(space, config)

    def make_encoder(self, latent_dim: int) -> ConvolutionalEncoder:
        """Return a new convolutional encoder with this many numbers per latent."""
        return ConvolutionalEncoder(self.space, self.config, latent_dim)
