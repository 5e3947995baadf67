"""What records and tables call a next-token policy: its tokenizer, and how that differs from the paper's."""

from collections.abc import Iterator

from oat.tokenizers.autoencoder import AutoencoderTokenizer
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.config import OATConfig

_ACTION_HORIZON = 32  # the paper's, which needs no mention


def tokenizer_method(tokenizer: BaseTokenizer) -> str:
    """Return the name of the method: what is compared as one has one name, whatever its size."""
    if not isinstance(tokenizer, AutoencoderTokenizer):
        return tokenizer.kind
    unordered = tokenizer.prefix_decodable and tokenizer.config.objective.keep == "full"
    return "-".join((f"{tokenizer.kind}×" if unordered else tokenizer.kind, *_differences(tokenizer)))


def _differences(tokenizer: AutoencoderTokenizer) -> Iterator[str]:
    """Yield what tells a learned tokenizer from the paper's, as the directories of its ablations are called."""
    config = tokenizer.config
    usual = OATConfig()
    if config.objective.keep == "powers_of_two":
        yield "powers-of-two"
    if isinstance(config, OATConfig) and config.register_attention != usual.register_attention:
        yield f"{config.register_attention}-registers"
    if config.decoder.kind != usual.decoder.kind:
        yield config.decoder.kind
    elif config.decoder.causal != usual.decoder.causal:
        yield "full-decoder"
    if config.levels != usual.levels:
        yield f"levels-{'-'.join(map(str, config.levels))}"
    if (tokenizer.action_horizon, config.latent_horizon) != (_ACTION_HORIZON, usual.latent_horizon):
        yield f"{tokenizer.action_horizon}x{config.latent_horizon}"
