"""The remainder: a regression that makes exact what the tokens chose, in PyTorch and exported."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from oat.errors import InvalidOption
from oat.export.export import export_policy
from oat.export.loading import load_runtime
from oat.policies import AutoregressivePolicy, DecodingOptions, Noise, TokenDecoding, load_policy
from oat.policies.learning import Lesson
from oat.policies.remainder import Remainder, same_way
from oat.policies.stopping import Fixed, RandomDepth
from tests.policies.small import CONFIG, CONTEXT, LONGEST_FAST, autoregressive, observe, tokenizer_of
from tests.tokenizers.fitted import smooth_chunks

DECODINGS = [
    TokenDecoding(num, greedy=True, remainder=True, num_actions=actions) for num, actions in ((1, None), (8, 5))
]
_DEPTHS = RandomDepth((0.2, 0.3, 0.0, 0.5))
RULES = [
    TokenDecoding(remainder=True, samples=4, executed=6),
    TokenDecoding(remainder=True, stop=Fixed(3)),
    TokenDecoding(remainder=True, stop=_DEPTHS),
    TokenDecoding(remainder=True, samples=4, stop=_DEPTHS),
]


def _with_remainder(kind: str = "oat") -> AutoregressivePolicy:
    torch.manual_seed(0)
    config = replace(CONFIG, remainder=10.0, mlp_width=48, mlp_depth=2)
    policy = AutoregressivePolicy(CONTEXT, tokenizer_of(kind), config, LONGEST_FAST if kind == "fast" else None).eval()
    torch.nn.init.normal_(policy.embedding.weight, std=0.3)
    assert policy.remainder is not None
    torch.nn.init.normal_(policy.remainder.mlp.out.weight, std=0.1)
    return policy


def _lesson(policy: AutoregressivePolicy, rows: int) -> Lesson:
    chunks = smooth_chunks(rows, 1)
    actions = policy.to_model_space(chunks)
    values, tasks = policy.context.read(observe(rows))
    valid = torch.ones(actions.shape[:2], dtype=torch.bool)
    return Lesson(values, tasks, actions, valid, policy.tokenizer.encode(chunks))


def _regressed(policy: AutoregressivePolicy, rows: int) -> torch.Tensor:
    assert policy.remainder is not None
    with torch.no_grad():
        chunks = policy.remainder(policy.context(*policy.context.read(observe(rows))))
    return policy.space.to_actions(chunks, policy.action_normalizer, None)


@pytest.mark.parametrize("kind", ["oat", "quest", "bin"])
def test_it_is_taken_where_it_goes_the_tokens_way_and_the_tokens_elsewhere(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = _with_remainder(kind)
    noise = Noise((1, 2))
    plain = policy.predict_chunk(observe(2), TokenDecoding(greedy=True), noise)
    assert plain.tokens is not None
    torch.testing.assert_close(plain.actions, policy.tokenizer.decode(plain.tokens))
    for radius, expected in ((10.0, _regressed(policy, 2)), (1e-6, plain.actions)):
        monkeypatch.setattr("oat.policies.remainder._ANOTHER_WAY", radius)
        whole = policy.predict_chunk(observe(2), TokenDecoding(greedy=True, remainder=True), noise)
        assert whole.tokens is not None
        assert torch.equal(plain.tokens.ids, whole.tokens.ids)
        torch.testing.assert_close(whole.actions, expected)
        assert bool(whole.valid.all())


def test_each_number_is_judged_alone_over_the_whole_chunk() -> None:
    remainder = Remainder(6, (4, 2), 16, 1)
    torch.nn.init.constant_(remainder.mlp.out.bias, 0.2)
    decoded = torch.zeros(2, 4, 2)
    decoded[0, -1, 1] = 2.0  # the second number goes elsewhere in the end
    decoded[1] = torch.nan
    completed = remainder.complete(torch.randn(2, 2, 3), decoded)
    assert torch.equal(completed[0, :, 0], torch.full((4,), 0.2))
    assert torch.equal(completed[0, :, 1], decoded[0, :, 1])
    assert bool(completed[1].isnan().all())


def test_tokens_that_do_not_decode_are_not_replaced() -> None:
    policy = _with_remainder("fast")
    chunk = policy.predict_chunk(observe(8), TokenDecoding(greedy=True, remainder=True), Noise(tuple(range(8))))
    assert not bool(chunk.valid.any())  # untrained, no sequence reaches its end
    assert bool(chunk.actions.isnan().all())


def test_the_first_actions_do_not_depend_on_how_many_are_wanted() -> None:
    policy = _with_remainder()
    whole, first = (
        policy.predict_chunk(
            observe(4), TokenDecoding(greedy=True, remainder=True, num_actions=count), Noise((1, 2, 3, 4))
        )
        for count in (None, 5)
    )
    assert torch.equal(first.actions, whole.actions[:, :5])


def test_every_prefix_has_one_and_streaming_gives_it() -> None:
    policy = _with_remainder()
    noise = Noise((1, 2))
    streamed = list(policy.stream(observe(2), TokenDecoding(greedy=True, remainder=True), noise))
    assert len(streamed) == policy.longest
    for count, chunk in enumerate(streamed, start=1):
        alone = policy.predict_chunk(observe(2), TokenDecoding(count, greedy=True, remainder=True), noise)
        torch.testing.assert_close(chunk.actions, alone.actions)


@pytest.mark.parametrize("kind", ["oat", "quest", "rvq"])
def test_training_lowers_its_error(kind: str) -> None:
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
    assert sum(errors[-5:]) < 0.3 * sum(errors[:5])


def test_it_learns_from_every_row_and_tokens_from_every_fourth() -> None:
    policy = _with_remainder().train()
    lesson = _lesson(policy, 8)
    assert lesson.actions is not None
    assert lesson.valid_mask is not None
    assert lesson.tokens is not None
    taught = policy(lesson.values, lesson.tasks, lesson.tokens, (lesson.actions, lesson.valid_mask))
    assert taught.left_out is not None
    assert len(taught.left_out) == 8
    torch.testing.assert_close(taught.nll, policy(lesson.values, lesson.tasks, lesson.tokens).nll[::4])


def test_its_gradients_reach_the_context_but_no_token() -> None:
    policy = _with_remainder().train()
    lesson = _lesson(policy, 8)
    taught = policy(lesson.values, lesson.tasks, lesson.tokens, (lesson.actions, lesson.valid_mask))
    torch.autograd.backward(taught.left_out.sum())
    trained = {name.split(".")[0] for name, each in policy.named_parameters() if each.grad is not None}
    assert trained == {"context", "remainder"}


def test_ways_differ_by_their_root_mean_square() -> None:
    other = torch.stack([torch.full((4,), 0.3), torch.full((4,), 0.9)], dim=1)[None]
    assert same_way(other, torch.zeros(1, 4, 2)).tolist() == [[True, False]]


def test_who_was_trained_with_one_uses_it_unless_tokens_alone_are_wanted() -> None:
    policy = _with_remainder()
    assert policy.default_decoding.remainder
    for options, name in (
        (DecodingOptions(), "K=8 remainder"),
        (DecodingOptions(remainder=False), "K=8"),
        (DecodingOptions.paper(), "K=8"),
    ):
        assert [each.name for each in policy.decodings(options)] == [name]
    assert not autoregressive("oat").default_decoding.remainder


@pytest.mark.parametrize("decoding", [*DECODINGS, TokenDecoding(4), TokenDecoding(remainder=True), *RULES], ids=str)
def test_the_export_is_the_same_function(decoding: TokenDecoding, tmp_path_factory: pytest.TempPathFactory) -> None:
    policy, folder = _exported(tmp_path_factory)
    runtime, rows = load_runtime(folder), 64
    noise = Noise.of([3] * rows, range(rows))
    expected, found = (each.predict_chunk(observe(rows), decoding, noise) for each in (policy, runtime))
    streamed = list(runtime.stream(observe(rows), decoding, noise))[-1]
    assert expected.tokens is not None
    assert found.tokens is not None
    assert found.tokens.tolist() == expected.tokens.tolist()
    torch.testing.assert_close(found.actions, expected.actions, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(streamed.actions, expected.actions, atol=1e-4, rtol=1e-4)
    plain = policy.predict_chunk(observe(rows), replace(decoding, remainder=False), noise)
    assert torch.equal(expected.actions, plain.actions) != decoding.remainder  # it completes some of them


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
