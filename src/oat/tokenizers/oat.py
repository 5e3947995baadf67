"""OAT (paper, section IV): register tokens, FSQ, nested dropout and causal registers; every prefix decodes."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from oat.data.transforms import Identity
from oat.errors import InvalidOption
from oat.huggingface.standalone import processor_source
from oat.io.checkpoints import staged_checkpoint
from oat.nn.transformer import EncoderBlock, make_norm, sinusoidal_positions
from oat.tokenizers.autoencoder import AutoencoderTokenizer
from oat.tokenizers.config import OATConfig, RegisterAttention
from oat.tokenizers.space import INPUTS, ActionSpace

PROCESSOR_FILE = "processing_oat.py"
PROCESSOR_CONFIG_FILE = "processor_config.json"
PROCESSOR_CONFIG = {"processor_class": "OATProcessor", "auto_map": {"AutoProcessor": "processing_oat.OATProcessor"}}
_LOAD_PROCESSOR = """from transformers import AutoProcessor

tokenizer = AutoProcessor.from_pretrained("DIRECTORY", trust_remote_code=True)  # oat need not be installed
tokens = tokenizer(actions)
decoded = tokenizer.decode([row[:4] for row in tokens])  # any prefix
"""


def attention_mask(horizon: int, registers: int, attention: RegisterAttention) -> Bool[Tensor, "sequence sequence"]:
    """Return True where a row may look at a column.

    Actions look at actions only, register i at all actions and at registers j ≤ i.
    """
    mask = torch.zeros(horizon + registers, horizon + registers, dtype=torch.bool)
    # If actions saw registers, a later register would reach an earlier one through them in the next block.
    mask[:, :horizon] = True
    among = torch.ones(registers, registers, dtype=torch.bool)
    mask[horizon:, horizon:] = among.tril() if attention == "causal" else among
    return mask


class RegisterEncoder(nn.Module):
    """Run a transformer over the actions followed by learned registers, whose outputs are the latents."""

    positions: Tensor
    mask: Tensor

    def __init__(self, space: ActionSpace, config: OATConfig, latent_dim: int) -> None:
        super().__init__()
        width = config.width.dim
        self.from_action = nn.Linear(space.model_dim, width)
        self.registers = nn.Parameter(torch.randn(config.latent_horizon, width) * 0.02)
        self.blocks = nn.ModuleList(EncoderBlock(config.width) for _ in range(config.encoder_layers))
        self.norm = make_norm(width)
        self.to_latent = nn.Linear(width, latent_dim)
        mask = attention_mask(space.action_horizon, config.latent_horizon, config.register_attention)
        # Both follow from the configuration, so checkpoints need not hold them.
        self.register_buffer("mask", mask, persistent=False)
        self.register_buffer("positions", sinusoidal_positions(space.action_horizon, width), persistent=False)

    def forward(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch tokens latent"]:
        """Return one latent vector per register; those of a chunk depend on its valid steps only."""
        registers = len(self.registers)
        embedded = self.from_action(actions) + self.positions
        x = torch.cat([embedded, self.registers.expand(len(actions), -1, -1)], dim=1)
        looked_at = nn.functional.pad(valid_mask, (0, registers), value=True)  # invented steps are nobody's keys
        mask = self.mask & looked_at[:, None, None, :]
        for block in self.blocks[:-1]:
            x = block(x, mask)
        x = self.blocks[-1](x, mask, last=registers)  # nobody reads the actions after the last block
        return self.to_latent(self.norm(x))


class OATTokenizer(AutoencoderTokenizer):
    """Give ordered tokens: `decode` takes any prefix of 1 … H_l tokens, of different lengths in one batch."""

    kind = "oat"
    config_class = OATConfig
    prefix_decodable = True
    config: OATConfig

    def __init__(self, space: ActionSpace, config: OATConfig | None = None) -> None:
        super().__init__(space, config or OATConfig())

    def make_encoder(self, latent_dim: int) -> RegisterEncoder:
        """Return a new register encoder with this many numbers per latent."""
        return RegisterEncoder(self.space, self.config, latent_dim)

    def for_normalized_inputs(self) -> "OATTokenizer":
        """Return this tokenizer for programs that transform and normalise by themselves, as this one does inside."""
        twin = copy.deepcopy(self)
        dim = self.space.model_dim
        twin.space = replace(self.space, action_dim=dim, transform=Identity(), state_dim=None, inputs="normalized")
        twin.normalizer = self.normalizer.unit()
        return twin

    def save_pretrained(self, directory: str | Path, inputs: str = "actions") -> None:
        """Write a checkpoint that is a Hugging Face processor as well, and brings all the Python it needs.

        With `inputs="normalized"` the processor takes and gives chunks as they are after this tokenizer's transform and
        normalisation, for programs that normalise before they call, such as openpi.
        """
        self.check_fitted()
        if inputs not in INPUTS:
            raise InvalidOption(f"inputs must be one of {', '.join(INPUTS)}, got {inputs!r}")
        if inputs == "normalized" and self.space.inputs == "actions":
            self.for_normalized_inputs().save_pretrained(directory)
            return
        card = replace(self.card(), load=_LOAD_PROCESSOR, library="transformers")
        with staged_checkpoint(Path(directory), self.kind) as staging:
            self.save_files(staging, card)
            (staging / PROCESSOR_FILE).write_text(processor_source(), "utf-8")
            (staging / PROCESSOR_CONFIG_FILE).write_text(json.dumps(PROCESSOR_CONFIG, indent=2))
