"""The blocks' weights: laid out for few rows, in every life of a layer, with the numbers of PyTorch's own layers."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from oat.nn.transformer import DecoderBlock, make_linear
from oat.nn.width import Width
from oat.policies import AutoregressivePolicy, load_policy
from oat.training.optimizers import Muon
from tests.policies.small import autoregressive

SHAPES = [(8, 24), (8, 8), (24, 8)]


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_only_the_layout_differs_from_pytorch_s(inputs: int, outputs: int) -> None:
    torch.manual_seed(0)
    ours, x = make_linear(inputs, outputs, bias=True), torch.randn(5, inputs)
    torch.manual_seed(0)
    theirs = nn.Linear(inputs, outputs)
    assert torch.equal(ours.weight, theirs.weight)
    torch.testing.assert_close(ours(x), theirs(x))
    assert ours.weight.stride() == ((1, outputs) if outputs >= inputs else (inputs, 1))


def _layout(module: nn.Module) -> list[tuple[int, ...]]:
    return [parameter.stride() for parameter in module.parameters()]


def _load(block: nn.Module) -> nn.Module:
    block.load_state_dict({name: tensor.contiguous() for name, tensor in block.state_dict().items()})
    return block


def _step(optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer], block: nn.Module) -> nn.Module:
    x = torch.randn(2, 3, 32)
    torch.autograd.backward(block(x, x).square().sum())
    matrices = [parameter for parameter in block.parameters() if parameter.ndim == 2]
    assert [each.grad.stride() for each in matrices if each.grad is not None] == [each.stride() for each in matrices]
    optimizer(matrices).step()
    return block


@pytest.mark.parametrize(
    "live",
    [
        _load,
        copy.deepcopy,
        lambda block: block.double().float(),
        lambda block: _step(lambda matrices: torch.optim.AdamW(matrices, 1e-3), block),
        lambda block: _step(lambda matrices: Muon(matrices, 1e-3), block),
    ],
    ids=["load", "copy", "convert", "AdamW", "Muon"],
)
def test_the_layout_stays(live: Callable[[nn.Module], nn.Module]) -> None:
    block = DecoderBlock(Width(32, 16))
    before = _layout(block)
    assert (1, 64) in before  # keys and values
    assert _layout(live(block)) == before


def test_a_loaded_policy_has_the_layout_too(tmp_path: Path) -> None:
    policy = autoregressive("oat")
    policy.save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy")
    assert isinstance(loaded, AutoregressivePolicy)
    assert _layout(loaded) == _layout(policy)
    assert loaded.embedding.weight.stride(0) == 1
    assert torch.equal(loaded.embedding.weight, policy.embedding.weight)
