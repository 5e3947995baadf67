"""The policies' transformer: step by step it computes what it computes at once, and it never looks ahead."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from oat.nn.generation import Generation
from oat.nn.transformer import Backbone
from oat.nn.width import Width
from oat.policies import AutoregressivePolicy, Noise
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
    whole, sequence = backbone(x, context, causal=True), Generation(backbone, context, LENGTH)
    steps = [sequence.step(x[:, place]) for place in range(LENGTH)]
    torch.testing.assert_close(torch.stack(steps, dim=1), whole, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_in_double_precision_both_are_the_same_to_many_digits(backbone: Backbone) -> None:
    x, context = (each.double() for each in _inputs())
    whole, sequence = backbone.double()(x, context, causal=True), Generation(backbone, context, LENGTH)
    steps = [sequence.step(x[:, place]) for place in range(LENGTH)]
    torch.testing.assert_close(torch.stack(steps, dim=1), whole, atol=1e-12, rtol=1e-12)


@torch.no_grad()
def test_autocast_makes_no_step_less_precise(backbone: Backbone) -> None:
    x, context = _inputs()
    whole = backbone(x, context, causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        sequence = Generation(backbone, context, LENGTH)
        steps = [sequence.step(x[:, place]) for place in range(LENGTH)]
        assert not torch.allclose(backbone(x, context, causal=True).float(), whole, atol=1e-3)
        chunk = autoregressive("oat").predict_chunk(observe(2))
    torch.testing.assert_close(torch.stack(steps, dim=1), whole, atol=1e-5, rtol=1e-5)
    assert torch.isfinite(chunk.actions).all()


def _scale(policy: AutoregressivePolicy) -> None:
    for parameter in policy.backbone.parameters():
        parameter.data.mul_(1.3)


def _load(policy: AutoregressivePolicy) -> None:
    policy.load_state_dict({name: 0.7 * tensor for name, tensor in policy.state_dict().items()})


def _exchange(policy: AutoregressivePolicy) -> None:
    for block in policy.backbone.layers:
        block.feed_forward.inner.weight = torch.nn.Parameter(-block.feed_forward.inner.weight)


def _train(policy: AutoregressivePolicy) -> None:
    nll, *_ = policy.train()(*policy.context.read(observe(4)), targets_of(policy, 4))
    torch.autograd.backward(nll.sum())
    torch.optim.SGD([each for each in policy.parameters() if each.requires_grad], 1e-2).step()


@pytest.mark.parametrize("change", [_scale, _load, _exchange, _train])
def test_whatever_changes_the_weights_changes_the_next_chunk(change: Callable[[AutoregressivePolicy], None]) -> None:
    """There is no second copy of them that could be out of date: what is generated is always what forward says."""
    policy, given = autoregressive("oat"), Noise((1, 2, 3))
    before = policy.predict_chunk(observe(3), noise=given)
    change(policy)
    after = policy.predict_chunk(observe(3), noise=given)
    assert before.log_probabilities is not None
    assert after.log_probabilities is not None
    assert after.tokens is not None
    assert not torch.allclose(after.log_probabilities, before.log_probabilities, atol=1e-2)
    with torch.no_grad():
        nll = policy(*policy.context.read(observe(3)), after.tokens).nll
    torch.testing.assert_close(after.log_probabilities, -nll, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["oat", "fast"])
@torch.no_grad()
def test_teacher_forced_logits_equal_generated_ones(kind: str) -> None:
    """The whole policy: feeding the targets through the cache gives the logits of one pass over them."""
    policy, rows = autoregressive(kind), 4
    values, tasks = policy.context.read(observe(rows))
    targets, counts = policy.targets(targets_of(policy, rows))
    taught = policy(values, tasks, targets_of(policy, rows))
    sequence = Generation(policy.backbone, policy.context(values, tasks), targets.shape[1])
    last = torch.full((rows,), policy.bos)
    for place in range(targets.shape[1]):
        logits = policy.logits(
            sequence.step(policy.embedding(last) + policy.positions[place]), policy.embedding.vectors()
        )
        last = targets[:, place]
        expected = -logits.log_softmax(-1).gather(1, last[:, None])[:, 0] * counts[:, place]
        torch.testing.assert_close(taught.nll[:, place], expected, atol=1e-4, rtol=1e-4)
        assert torch.equal(taught.likely[:, place], logits.argmax(-1))


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


class _Products(TorchFunctionMode):
    """Counts the products with each weight, whether a layer is called or its weight used."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Counter[int]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (F.linear, torch.mm):
            self.count[args[1].data_ptr()] += 1
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def test_the_context_is_projected_once_for_each_chunk() -> None:
    policy = autoregressive("oat")
    with _Products() as products:
        for chunks in (1, 2, 3):
            policy.predict_chunk(observe(2))
            for block in policy.backbone.layers:
                cross, own = (each.key_value.weight for each in (block.cross_attention, block.self_attention))
                assert products.count[cross.data_ptr()] == chunks
                assert products.count[own.data_ptr()] == chunks * policy.longest


@torch.no_grad()
def test_the_cache_is_allocated_once(backbone: Backbone) -> None:
    _, context = _inputs()
    sequence = Generation(backbone, context, LENGTH)
    place = sequence.cache.memory.data_ptr()
    for _ in range(LENGTH):
        sequence.step(torch.zeros(BATCH, DIM))
    assert sequence.cache.memory.data_ptr() == place
    assert sequence.cache.length == LENGTH
