"""Folded blocks are the policies' own blocks with their weights multiplied out: equal whatever the weights."""

import pytest
import torch

from oat.export.folded_blocks import FoldedBlocks, FoldedMemory
from oat.nn.transformer import Backbone
from oat.nn.width import Width

BATCH, LENGTH, TOKENS, DIM = 3, 7, 5, 32


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_folding_changes_nothing(causal: bool) -> None:
    torch.manual_seed(0)
    backbone = Backbone(Width(DIM, 16), layers=3).double()
    for parameter in backbone.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # gains and biases that differ from 1 and 0
    x, context = torch.randn(BATCH, LENGTH, DIM).double(), torch.randn(BATCH, TOKENS, DIM).double()
    expected = backbone(x, context, causal)
    mask = torch.full((LENGTH, LENGTH), -torch.inf).triu(1).double() if causal else None
    folded = FoldedBlocks(backbone.layers)
    for block, memory in folded.with_memory(*FoldedMemory(backbone.layers)(context)):
        x = block.read(block.mix(x, *block.project(x), mask), *memory)
    torch.testing.assert_close(backbone.norm(x), expected, atol=1e-10, rtol=1e-10)
