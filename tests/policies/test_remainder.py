"""The remainder: what the decoded tokens leave out, learned from the policy's own draws, in PyTorch and exported."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from oat.errors import InvalidOption
from oat.export.export import export_policy
from oat.export.loading import load_runtime
from oat.policies import AutoregressivePolicy, Noise, TokenDecoding, load_policy
from oat.policies.learning import Lesson
from oat.policies.token_lessons import draw_tokens, same_way
from tests.policies.small import autoregressive, knowing, observe, targets_of
from tests.tokenizers.fitted import smooth_chunks

DECODINGS = [
    TokenDecoding(num, greedy=True, remainder=True, num_actions=actions) for num, actions in ((1, None), (8, 5))
]


def _with_remainder(kind: str = "oat") -> AutoregressivePolicy:
    policy = knowing(kind, remainder=10.0, mlp_width=48, mlp_depth=2)
    assert policy.remainder is not None
    torch.nn.init.normal_(policy.remainder.mlp.out.weight, std=0.1)
    return policy


def _lesson(policy: AutoregressivePolicy, rows: int) -> Lesson:
    chunks = smooth_chunks(rows, 1)
    actions = policy.to_model_space(chunks)
    values, tasks = policy.context.read(observe(rows))
    valid = torch.ones(actions.shape[:2], dtype=torch.bool)
    return Lesson(values, tasks, actions, valid, policy.tokenizer.encode(chunks))


def test_it_is_added_in_model_space_and_only_where_it_is_asked_for() -> None:
    policy = _with_remainder()
    assert policy.remainder is not None
    noise = Noise((1, 2))
    plain = policy.predict_chunk(observe(2), TokenDecoding(3, greedy=True), noise)
    whole = policy.predict_chunk(observe(2), TokenDecoding(3, greedy=True, remainder=True), noise)
    assert plain.tokens is not None
    assert whole.tokens is not None
    assert torch.equal(plain.tokens.ids, whole.tokens.ids)
    torch.testing.assert_close(plain.actions, policy.tokenizer.decode(plain.tokens))
    with torch.no_grad():
        decoded, _ = policy.tokenizer.decode_normalized(plain.tokens, policy.space.action_horizon)
        context = policy.context(*policy.context.read(observe(2)))
        added = decoded + policy.remainder(context, decoded, plain.tokens.lengths)
    expected = policy.space.to_actions(added, policy.action_normalizer, None)
    torch.testing.assert_close(whole.actions, expected)
    assert not torch.allclose(whole.actions, plain.actions, atol=1e-3)


def test_every_prefix_has_one_and_streaming_gives_it() -> None:
    policy = _with_remainder()
    noise = Noise((1, 2))
    streamed = list(policy.stream(observe(2), TokenDecoding(greedy=True, remainder=True), noise))
    assert len(streamed) == policy.longest
    for count, chunk in enumerate(streamed, start=1):
        alone = policy.predict_chunk(observe(2), TokenDecoding(count, greedy=True, remainder=True), noise)
        torch.testing.assert_close(chunk.actions, alone.actions)


@pytest.mark.parametrize("kind", ["oat", "quest"])
def test_training_lowers_the_error_of_the_policy_s_own_chunks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oat.policies.token_lessons._ANOTHER_WAY", 10.0)  # untrained, all draws go elsewhere
    policy = _with_remainder(kind).train()
    lesson = _lesson(policy, 16)
    optimizer = torch.optim.AdamW([each for each in policy.parameters() if each.requires_grad], 3e-3)
    errors: list[float] = []
    for step in range(60):
        loss, shown = policy.loss(policy, lesson, torch.Generator().manual_seed(step))
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        errors.append(float(shown["mse"]))
    assert sum(errors[-5:]) < 0.7 * sum(errors[:5])


def test_gradients_reach_the_remainder_and_the_context_but_no_token() -> None:
    policy = _with_remainder().train()
    lesson = _lesson(policy, 8)
    assert lesson.actions is not None
    assert lesson.valid_mask is not None
    context = policy.context(lesson.values, lesson.tasks)
    errors = policy._left_out(context, (lesson.actions, lesson.valid_mask), torch.Generator().manual_seed(0))
    torch.autograd.backward(errors.sum())
    trained = {name.split(".")[0] for name, each in policy.named_parameters() if each.grad is not None}
    assert trained == {"context", "remainder"}


def test_draws_are_the_policy_s_own_and_repeat_with_their_generator() -> None:
    policy = _with_remainder()
    context = policy.context(*policy.context.read(observe(300)))
    first, again, other = (draw_tokens(policy, context, 8, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (300, 8)


def test_draws_that_go_another_way_teach_nothing() -> None:
    actions = torch.zeros(2, 4, 3)
    decoded = torch.stack([torch.full((4, 3), 0.3), torch.full((4, 3), 0.9)])
    valid: Tensor = torch.ones(2, 4, dtype=torch.bool)
    assert same_way(decoded, actions, valid).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("decoding", [*DECODINGS, TokenDecoding(4), TokenDecoding(remainder=True)], ids=str)
def test_the_export_is_the_same_function(decoding: TokenDecoding, tmp_path_factory: pytest.TempPathFactory) -> None:
    policy, folder = _exported(tmp_path_factory)
    runtime, rows = load_runtime(folder), 64
    noise = Noise.of([3] * rows, range(rows))
    expected, found = (each.predict_chunk(observe(rows), decoding, noise) for each in (policy, runtime))
    streamed = list(runtime.stream(observe(rows), decoding, noise))[-1]
    assert expected.tokens is not None
    assert found.tokens is not None
    assert torch.equal(found.tokens.ids, expected.tokens.ids)
    torch.testing.assert_close(found.actions, expected.actions, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(streamed.actions, expected.actions, atol=1e-4, rtol=1e-4)


_MADE: dict[str, tuple[AutoregressivePolicy, Path]] = {}


def _exported(factory: pytest.TempPathFactory) -> tuple[AutoregressivePolicy, Path]:
    """One export for all decodings: it takes longer than they do."""
    if not _MADE:
        folder = factory.mktemp("remainder")
        policy = _with_remainder()
        policy.save(folder / "policy")
        export_policy(folder / "policy", folder / "export")
        loaded = load_policy(folder / "policy")
        assert isinstance(loaded, AutoregressivePolicy)
        _MADE["oat"] = (loaded, folder / "export")
    return _MADE["oat"]


def test_a_policy_without_one_says_how_to_get_it() -> None:
    with pytest.raises(InvalidOption, match=r"trained without a remainder, which oat train --remainder 10 adds"):
        autoregressive("oat").predict_chunk(observe(1), TokenDecoding(remainder=True))


def test_held_out_measures_need_no_draws() -> None:
    policy = _with_remainder()
    taught = policy(*policy.context.read(observe(4)), targets_of(policy, 4))
    assert taught.left_out is None
