"""OAT (paper, section IV): register tokens, FSQ, nested dropout and causal registers; every prefix decodes."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from oat.huggingface.standalone import processor_source
from oat.io.checkpoints import staged_checkpoint
from oat.nn.transformer import EncoderBlock, make_norm, sinusoidal_positions
from oat.tokenizers.autoencoder import AutoencoderConfig, AutoencoderTokenizer
from oat.tokenizers.tokenizer import ActionSpace

RegisterAttention = Literal["causal", "full"]

PROCESSOR_FILE, PROCESSOR_CONFIG_FILE = "processing_oat.py", "processor_config.json"
PROCESSOR_CONFIG = {"processor_class": "OATProcessor", "auto_map": {"AutoProcessor": "processing_oat.OATProcessor"}}
_LOAD_PROCESSOR = """from transformers import AutoProcessor

tokenizer = AutoProcessor.from_pretrained("DIRECTORY", trust_remote_code=True)  # oat need not be installed
tokens = tokenizer(actions)
decoded = tokenizer.decode([row[:4] for row in tokens])  # any prefix
"""


@dataclass(frozen=True)
class OATConfig(AutoencoderConfig):
    """The paper's tokenizer."""

    register_attention: RegisterAttention = "causal"
    """Whether register i sees registers j ≤ i only, or all of them (an ablation)."""


def attention_mask(horizon: int, registers: int, attention: RegisterAttention) -> Bool[Tensor, "sequence sequence"]:
    """True where a row may look at a column: actions at actions only, register i at all actions and registers j ≤ i."""
    mask = torch.zeros(horizon + registers, horizon + registers, dtype=torch.bool)
    mask[:, :horizon] = True
    among = torch.ones(registers, registers, dtype=torch.bool)
    mask[horizon:, horizon:] = among.tril() if attention == "causal" else among
    return mask


class RegisterEncoder(nn.Module):
    """A transformer over the actions followed by learned registers; the registers' outputs are the latents."""

    positions: Tensor
    mask: Tensor

    def __init__(self, space: ActionSpace, config: OATConfig) -> None:
        super().__init__()
        width = config.width.dim
        self.from_action = nn.Linear(space.model_dim, width)
        self.registers = nn.Parameter(torch.randn(config.latent_horizon, width) * 0.02)
        self.blocks = nn.ModuleList(EncoderBlock(config.width) for _ in range(config.encoder_layers))
        self.norm = make_norm(width)
        self.to_latent = nn.Linear(width, len(config.levels))
        mask = attention_mask(space.action_horizon, config.latent_horizon, config.register_attention)
        self.register_buffer("mask", mask, persistent=False)
        self.register_buffer("positions", sinusoidal_positions(space.action_horizon, width), persistent=False)

    def forward(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch tokens latent"]:
        batch, registers = len(actions), len(self.registers)
        embedded = self.from_action(actions) + self.positions
        x = torch.cat([embedded, self.registers.expand(batch, -1, -1)], dim=1)
        looked_at = nn.functional.pad(valid_mask, (0, registers), value=True)  # invented steps are nobody's keys
        mask = self.mask & looked_at[:, None, None, :]
        for block in self.blocks[:-1]:
            x = block(x, mask)
        x = self.blocks[-1](x, mask, last=registers)  # nobody reads the actions after the last block
        return self.to_latent(self.norm(x))


class OATTokenizer(AutoencoderTokenizer):
    """Ordered tokens: `decode` takes any prefix of 1 … H_l tokens, of different lengths in one batch."""

    kind = "oat"
    config_class = OATConfig
    prefix_decodable = True

    def __init__(self, space: ActionSpace, config: OATConfig | None = None) -> None:
        config = config or OATConfig()
        super().__init__(space, config, RegisterEncoder(space, config))

    def save_pretrained(self, directory: str | Path) -> None:
        """Write a checkpoint that is a Hugging Face processor as well, and brings all the Python it needs."""
        card = replace(self.card(), load=_LOAD_PROCESSOR, library="transformers")
        with staged_checkpoint(Path(directory), self.kind) as staging:
            self.save_files(staging, card)
            (staging / PROCESSOR_FILE).write_text(processor_source(), "utf-8")
            (staging / PROCESSOR_CONFIG_FILE).write_text(json.dumps(PROCESSOR_CONFIG, indent=2))
