"""The smoothness term of learned tokenizers: a chunk and itself one step later should have nearly the same latents."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def one_step_ahead(
    actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
) -> tuple[Float[Tensor, "batch time dim"], Bool[Tensor, "batch time"]]:
    """Return chunks without their first action, with their last one repeated, and which of their steps are valid."""
    # The true neighbour would need a second window for every example of a batch, and chunks in memory have none. It
    # differs in its last action only, for which the one before it is the nearest guess. That step counts as valid:
    # marked invalid, it would tell the encoder of an episode's end that is not there. Where an episode does end within
    # the chunk, the result is the true neighbour.
    horizon = actions.shape[1]
    steps = torch.arange(1, horizon + 1, device=actions.device).clamp(max=horizon - 1)
    valid = valid_mask[:, steps]
    valid[:, 0] = True  # an episode's last step has nothing after it, and encoders need one step to look at
    return actions[:, steps], valid


def roughness(
    positions: Float[Tensor, "batch tokens latent"], later: Float[Tensor, "batch tokens latent"]
) -> Float[Tensor, ""]:
    """Return the mean squared distance between latents' positions, which are counted in levels by a quantizer."""
    return (positions - later).square().mean()
