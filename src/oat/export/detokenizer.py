"""Tokens → actions, for every prefix and every number of first actions, as modules to export."""

from collections.abc import Iterable
from typing import cast

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat.errors import InvalidOption
from oat.export.folded_blocks import FoldedBlock, FoldedBlocks, FoldedMemory
from oat.nn.transformer import DecoderBlock
from oat.policies.remainder import Context, Remainder
from oat.tokenizers.autoencoder import AutoencoderTokenizer
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.decoder import SinglePassDecoder
from oat.tokenizers.tokens import Tokens

Ids = Int64[Tensor, "batch width"]
Lengths = Int64[Tensor, " batch"]
Times = Int64[Tensor, " steps"]
Decoded = Float[Tensor, "batch steps dim"]


class Detokenizer(nn.Module):
    """Decode tokens at the given times: 0, 1, … for the chunk's first actions.

    Ids come as wide as the longest sequence; what follows a row's length does not count.
    """

    def __init__(self, tokenizer: BaseTokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer

    def forward(
        self, ids: Ids, lengths: Lengths, times: Times, state: Float[Tensor, "batch state"] | None = None
    ) -> Decoded:
        """Return the actions at these times, in the robot's units."""
        return self.tokenizer.space.to_actions(self.decode(ids, lengths, times), self.tokenizer.normalizer, state)

    def decode(self, ids: Ids, lengths: Lengths, times: Times) -> Decoded:
        """Return the actions at these times, in model space."""
        return self.tokenizer.decode_normalized(Tokens(ids, lengths), self.tokenizer.action_horizon)[0][:, times]


class SinglePassDetokenizer(Detokenizer):
    """Decode by a single-pass decoder with its weights folded.

    A memory token is linear in its code, so its keys and values for all layers come from one small product. The first
    self-attention sees nothing but positions and is computed in advance.
    """

    codes: Tensor
    basis: Tensor
    token_positions: Tensor
    start: Tensor
    places: Tensor

    def __init__(self, tokenizer: AutoencoderTokenizer, decoder: SinglePassDecoder) -> None:
        super().__init__(tokenizer)
        self.causal = decoder.config.causal
        self.norm = decoder.norm
        self.head = decoder.head
        layers = list(cast(Iterable[DecoderBlock], decoder.blocks))
        self.blocks = FoldedBlocks(layers)
        self.memory = FoldedMemory(layers)
        with torch.no_grad():
            embedding = [*tokenizer.from_code.weight.mT, tokenizer.from_code.bias, tokenizer.mask]
            buffers = {
                "codes": tokenizer.quantizer.decode(torch.arange(tokenizer.vocab_size)),
                "basis": self.memory.project(torch.stack(embedding)),
                "token_positions": self.memory.project(tokenizer.token_positions),
                "start": self._mix(self.blocks.layers[0], decoder.queries[None], torch.arange(len(decoder.queries)))[0],
                "places": torch.arange(tokenizer.max_tokens),
            }
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def _mix(
        self, block: FoldedBlock, x: Float[Tensor, "batch time dim"], times: Times
    ) -> Float[Tensor, "batch time dim"]:
        mask = torch.where(times[:, None] >= times, 0.0, -torch.inf) if self.causal else None
        return block.mix(x, *block.project(x), mask)

    def decode(self, ids: Ids, lengths: Lengths, times: Times) -> Decoded:
        """Return the actions at these times; where step t sees only steps up to t, no others are computed."""
        computed = times if self.causal else torch.arange(len(self.start))
        keys, values = self.memory.arrange(self._features(ids, lengths) @ self.basis + self.token_positions)
        x = self.start[computed][None]
        for number, (block, memory) in enumerate(self.blocks.with_memory(keys, values)):
            x = block.read(self._mix(block, x, computed) if number else x, *memory)
        actions = self.head(self.norm(x))
        return actions if self.causal else actions[:, times]

    def _features(self, ids: Ids, lengths: Lengths) -> Float[Tensor, "batch tokens features"]:
        """Return what a memory token is linear in: its code, whether it is there, whether MASK stands for it."""
        kept = (self.places < lengths[:, None])[..., None].float()
        return torch.cat([self.codes[ids] * kept, kept, 1 - kept], dim=-1)


class RemainderDetokenizer(nn.Module):
    """Decode tokens, and make exact what they chose by what a policy regresses from its context."""

    every: Tensor

    def __init__(self, detokenizer: Detokenizer, remainder: Remainder) -> None:
        super().__init__()
        self.detokenizer = detokenizer
        self.remainder = remainder
        self.register_buffer("every", torch.arange(detokenizer.tokenizer.action_horizon))

    def forward(
        self,
        ids: Ids,
        lengths: Lengths,
        times: Times,
        context: Context,
        share: Float[Tensor, ""],
        state: Float[Tensor, "batch state"] | None = None,
    ) -> Decoded:
        """Return the actions at these times, in the robot's units; `share` is 1 with the remainder, 0 without."""
        tokenizer = self.detokenizer.tokenizer
        # Whole chunks are compared, also where only their first actions are wanted, and as they would be executed.
        actions = self.detokenizer(ids, lengths, self.every, state)
        completed = self.remainder.complete(context, tokenizer.to_model_space(actions, state))
        exact = tokenizer.space.to_actions(completed, tokenizer.normalizer, state)
        return torch.where(share > 0, exact, actions)[:, times]


def make_detokenizer(tokenizer: BaseTokenizer) -> Detokenizer:
    """Return the fastest for the tokenizer's kind, or raise `InvalidOption` where decoding is not a tensor program."""
    if tokenizer.not_a_graph is not None:
        raise InvalidOption(f"{tokenizer.kind} {tokenizer.not_a_graph}, which ONNX cannot do; use its checkpoint")
    decoder = tokenizer.foldable_decoder()
    if decoder is None:
        return Detokenizer(tokenizer)
    assert isinstance(tokenizer, AutoencoderTokenizer)
    return SinglePassDetokenizer(tokenizer, decoder)
