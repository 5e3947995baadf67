"""The policies' transformer: step by step it computes what it computes at once, and it never looks ahead."""

from collections import Counter

import pytest
import torch
from torch import Tensor

from oat.nn.transformer import Backbone, Width
from tests.policies.small import autoregressive, observe, targets_of

BATCH, LENGTH, TOKENS, DIM = 3, 9, 5, 32


@pytest.fixture
def backbone() -> Backbone:
    torch.manual_seed(0)
    return Backbone(Width(DIM, 16), layers=2).eval()


def _inputs(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, LENGTH, DIM, generator=generator), torch.randn(BATCH, TOKENS, DIM, generator=generator)


@torch.no_grad()
def test_step_by_step_equals_at_once(backbone: Backbone) -> None:
    x, context = _inputs()
    whole, sequence = backbone(x, context, causal=True), backbone.start(context, LENGTH)
    steps = [sequence.step(x[:, place]) for place in range(LENGTH)]
    torch.testing.assert_close(torch.stack(steps, dim=1), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["oat", "fast"])
@torch.no_grad()
def test_teacher_forced_logits_equal_generated_ones(kind: str) -> None:
    """The whole policy: feeding the targets through the cache gives the logits of one pass over them."""
    policy, rows = autoregressive(kind), 4
    values, tasks = policy.context.read(observe(rows))
    targets, counts = policy.targets(targets_of(policy, rows))
    nll, _, likely = policy(values, tasks, targets_of(policy, rows))
    sequence = policy.backbone.start(policy.context(values, tasks), targets.shape[1])
    last = torch.full((rows,), policy.bos)
    for place in range(targets.shape[1]):
        logits = policy._logits(sequence.step(policy.embedding(last) + policy.positions[place]))
        last = targets[:, place]
        expected = -logits.log_softmax(-1).gather(1, last[:, None])[:, 0] * counts[:, place]
        torch.testing.assert_close(nll[:, place], expected, atol=1e-4, rtol=1e-4)
        assert torch.equal(likely[:, place], logits.argmax(-1))


@torch.no_grad()
def test_no_position_depends_on_later_ones(backbone: Backbone) -> None:
    x, context = _inputs()
    whole = backbone(x, context, causal=True)
    for place in range(LENGTH):
        changed = x.clone()
        changed[:, place:] = 100 * torch.randn(BATCH, LENGTH - place, DIM, generator=torch.Generator().manual_seed(7))
        out = backbone(changed, context, causal=True)
        torch.testing.assert_close(out[:, :place], whole[:, :place], atol=1e-6, rtol=1e-6)
        assert not torch.allclose(out[:, place], whole[:, place], atol=1e-2)


@torch.no_grad()
def test_every_position_depends_on_earlier_ones_and_on_the_context(backbone: Backbone) -> None:
    x, context = _inputs()
    whole, other = backbone(x, context, causal=True), x.clone()
    other[:, 0] *= -1
    assert ((backbone(other, context, causal=True) - whole).abs().amax((0, 2)) > 1e-4).all()
    assert ((backbone(x, -context, causal=True) - whole).abs().amax((0, 2)) > 1e-4).all()


@torch.no_grad()
def test_without_the_mask_all_positions_see_each_other(backbone: Backbone) -> None:
    x, context = _inputs()
    whole, other = backbone(x, context, causal=False), x.clone()
    other[:, -1] *= -1
    assert ((backbone(other, context, causal=False) - whole).abs().amax((0, 2)) > 1e-5).all()


@torch.no_grad()
def test_the_context_is_projected_once_for_each_chunk() -> None:
    policy, calls = autoregressive("oat"), Counter[str]()
    for block in policy.backbone.layers:
        block.cross_attention.key_value.register_forward_hook(lambda *_: calls.update(["cross"]))
        block.self_attention.key_value.register_forward_hook(lambda *_: calls.update(["self"]))
    for chunks in (1, 2, 3):
        policy.predict_chunk(observe(2))
        assert calls["cross"] == chunks * policy.config.layers
        assert calls["self"] == chunks * policy.config.layers * policy.longest


@torch.no_grad()
def test_the_cache_is_allocated_once(backbone: Backbone) -> None:
    _, context = _inputs()
    sequence = backbone.start(context, LENGTH)
    places = [past._memory.data_ptr() for past in sequence.pasts]
    for _ in range(LENGTH):
        sequence.step(torch.zeros(BATCH, DIM))
    assert [past._memory.data_ptr() for past in sequence.pasts] == places
