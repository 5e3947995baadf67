"""Muon orthogonalises, learns, and leaves to AdamW what it is not for."""

import pytest
import torch

from oat.nn.recipe import TrainConfig
from oat.tokenizers.space import ActionSpace
from oat.training.optimizers import Muon, make_optimizers, orthogonalize
from tests.tokenizers.fitted import untrained


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 40)])
def test_singular_values_become_about_one(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalize(matrices))
    assert 0.5 < float(values.min()) <= float(values.max()) < 1.5
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    assert float((orthogonalize(matrices) * (left @ right)).sum((1, 2)).min()) > 0.8 * shape[1]  # the same directions


@pytest.mark.parametrize("rows", [4, 30])
def test_muon_solves_a_linear_problem(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs, solution = torch.randn(200, 12, generator=generator), torch.randn(rows, 12, generator=generator)
    layer = torch.nn.Linear(12, rows, bias=False)
    losses, optimizer = [], Muon([layer.weight], lr=0.04)
    for step in range(200):
        optimizer.param_groups[0]["lr"] = 0.04 * (1 - step / 200)
        loss = (layer(inputs) - inputs @ solution.T).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.01 * losses[0]


def test_muon_gets_the_transformers_matrices_and_adamw_the_rest() -> None:
    module = untrained("oat", ActionSpace(8, 2))
    adamw, muon = make_optimizers(module, {"encoder.": 0.1}, TrainConfig(optimizer="muon"))
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    in_muon = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    in_adamw = {names[id(p)] for group in adamw.param_groups for p in group["params"]}
    assert in_muon | in_adamw == set(names.values())
    assert not in_muon & in_adamw
    assert "encoder.blocks.0.attention.query.weight" in in_muon
    assert {"encoder.registers", "encoder.from_action.weight", "decoder.head.weight", "mask"} <= in_adamw
    for optimizer in (adamw, muon):
        for group in optimizer.param_groups:
            assert {names[id(p)].startswith("encoder.") for p in group["params"]} == {group["factor"] == 0.1}
    (only,) = make_optimizers(module, {}, TrainConfig(optimizer="adamw"))
    assert isinstance(only, torch.optim.AdamW)
