"""Choosing among samples: each rule takes the chunk it says, in every runtime."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from oat.errors import InvalidOption, OatError
from oat.export.loading import load_runtime
from oat.policies import BasePredictor, Chunk, Denoising, Noise, TokenDecoding
from oat.policies.choosing import (
    CHOOSING_RULES,
    Candidates,
    Coherent,
    Contrast,
    Guided,
    Likelihood,
    Medoid,
    Previous,
    choose,
    make_choosing_rule,
)
from oat.policies.decoding import DecodingOptions, SampledDecoding
from oat.policies.stopping import DepthRule, Fixed, RandomDepth
from oat.tokenizers.space import ActionSpace
from tests.export.exported import exported
from tests.policies.small import CONTEXT, autoregressive, diffusion, knowing, observe, policy_of
from tests.tokenizers.fitted import DIM, HORIZON

SAMPLES = 5
EVERY = ("oat", "quest", "diffusion")


def _decoding(kind: str, **options: Any) -> SampledDecoding:
    return Denoising(4, **options) if kind == "diffusion" else TokenDecoding(**options)


def _samples(policy: BasePredictor, rows: int, decoding: SampledDecoding, noise: Noise) -> list[Chunk]:
    """What each sample would be if it were drawn alone."""
    keys = noise.repeated(SAMPLES).keys
    alone = replace(decoding, samples=1, commit=0, choose=Medoid())
    return [policy.predict_chunk(observe(rows), alone, Noise(keys[number::SAMPLES])) for number in range(SAMPLES)]


def _actions(chunks: list[Chunk]) -> torch.Tensor:
    return torch.stack([chunk.actions for chunk in chunks], 1)


@pytest.mark.parametrize("kind", EVERY)
def test_the_medoid_is_the_sample_nearest_to_the_others(kind: str) -> None:
    policy, noise = policy_of(kind), Noise((1, 2, 3))
    decoding = _decoding(kind, samples=SAMPLES, choose=Medoid(), executed=6)
    actions = _actions(_samples(policy, 3, decoding, noise))
    near = actions[:, :, :6] / policy.action_scale
    distances = (near[:, :, None] - near[:, None]).norm(dim=-1).mean(-1).sum(-1)
    chosen = policy.predict_chunk(observe(3), decoding, noise)
    expected = actions[torch.arange(3), distances.argmin(1)]
    torch.testing.assert_close(chosen.actions, expected, atol=1e-5, rtol=0)
    assert len({int(each) for each in distances.argmin(1)}) > 1 or kind != "oat"  # it is not always the first


def test_the_best_of_n_is_the_most_likely() -> None:
    policy, noise = policy_of("oat"), Noise((1, 2, 3))
    decoding = TokenDecoding(samples=SAMPLES, choose=Likelihood())
    drawn = _samples(policy, 3, decoding, noise)
    likelihoods = torch.stack([each.log_probabilities.sum(1) for each in drawn if each.log_probabilities is not None])
    chosen = policy.predict_chunk(observe(3), decoding, noise)
    assert chosen.log_probabilities is not None
    torch.testing.assert_close(chosen.log_probabilities.sum(1), likelihoods.max(0).values)


@pytest.mark.parametrize("kind", EVERY)
def test_coherent_continues_the_previous_chunk_and_else_takes_the_medoid(kind: str) -> None:
    policy, noise = policy_of(kind), Noise((1, 2, 3))
    decoding = _decoding(kind, samples=SAMPLES, choose=Coherent())
    drawn = _actions(_samples(policy, 3, decoding, noise))
    rests = [drawn[0, 3, :8].numpy(), None, drawn[2, 1, :3].numpy()]
    chosen = policy.predict_chunk(observe(3), decoding, noise, previous=Previous.of(rests, DIM))
    torch.testing.assert_close(chosen.actions[[0, 2]], drawn[[0, 2], [3, 1]], atol=1e-5, rtol=0)
    medoid = policy.predict_chunk(observe(3), replace(decoding, choose=Medoid()), noise)
    torch.testing.assert_close(chosen.actions[1], medoid.actions[1])
    first = policy.predict_chunk(observe(3), decoding, noise)
    torch.testing.assert_close(first.actions, medoid.actions)


def test_contrast_is_far_from_what_a_weaker_policy_does() -> None:
    """Three samples: two near each other, one of them where the weaker policy is."""
    actions = torch.tensor([0.0, 0.1, -0.3])[None, :, None, None].expand(1, 3, 4, 1)
    weaker = torch.full((1, 2, 4, 1), -0.3)
    valid = torch.ones(1, 3, dtype=torch.bool)
    assert choose(Contrast(), Candidates(actions, valid, 4, weaker=weaker), 0).tolist() == [1]
    previous = torch.full((1, 2, 1), -0.9)  # so far away that only coherence counts
    found = choose(Contrast(decay=1.0), Candidates(10 * actions, valid, 4, None, 10 * previous, 0 * weaker), 0)
    assert found.tolist() == [2]


@pytest.mark.parametrize("weaker", [None, "quest", "regression"])
def test_contrast_with_itself_or_with_another_policy(weaker: str | None) -> None:
    rule = Contrast(None if weaker is None else policy_of(weaker), weaker or "")
    policy, noise = policy_of("oat"), Noise((1, 2))
    decoding = TokenDecoding(samples=SAMPLES, choose=rule)
    drawn = _actions(_samples(policy, 2, decoding, noise))
    chosen = policy.predict_chunk(observe(2), decoding, noise)
    gaps = (drawn - chosen.actions[:, None]).abs().amax((2, 3)).amin(1)
    assert (gaps < 1e-5).all()  # it is one of the samples


def test_a_majority_decides_a_gripper() -> None:
    actions = torch.zeros(1, 5, 3, 2)
    actions[0, :, :, 1] = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0])[:, None]
    actions[0, :, :, 0] = torch.tensor([0.0, 0.1, 5.0, 6.0, -4.0])[:, None]
    valid = torch.ones(1, 5, dtype=torch.bool)
    rule = Medoid(binary=(1,))
    best = choose(rule, Candidates(actions, valid, 3), 0)
    assert best.tolist() == [1]  # the nearest of all by the first number, which alone counts
    finished = rule.finish(actions[0, best], actions, valid)
    assert finished[0, :, 0].tolist() == pytest.approx([0.1] * 3)
    assert finished[0, :, 1].tolist() == [1.0] * 3


def test_what_does_not_decode_is_never_chosen_where_another_does() -> None:
    actions = torch.zeros(2, 3, 2, 1)
    actions[0, :2] = torch.nan
    actions[1] = torch.nan
    valid = torch.tensor([[False, False, True], [False] * 3])
    for name in ("medoid", "coherent"):
        chosen = choose(make_choosing_rule(name), Candidates(actions, valid, 2), 0)
        assert chosen.tolist() == [2, 0]
    fast = policy_of("fast")
    noise = Noise(tuple(range(20)))
    alone = fast.predict_chunk(observe(20), TokenDecoding(), noise).valid
    several = fast.predict_chunk(observe(20), TokenDecoding(samples=4, choose=Likelihood()), noise).valid
    assert (several | ~alone).all()


def test_committed_actions_are_kept() -> None:
    policy, noise = policy_of("oat"), Noise((1, 2))
    decoding = TokenDecoding(samples=4, commit=3)
    drawn = _actions(
        [policy.predict_chunk(observe(2), TokenDecoding(), Noise(noise.repeated(4).keys[n::4])) for n in range(4)]
    )
    for sample in range(4):
        previous = Previous.of([drawn[0, sample, :3].numpy(), drawn[1, sample, :10].numpy()], DIM)
        chosen = policy.predict_chunk(observe(2), decoding, noise, previous=previous)
        torch.testing.assert_close(chosen.actions, drawn[:, sample], atol=1e-5, rtol=0)
    without = policy.predict_chunk(observe(2), decoding, noise)
    torch.testing.assert_close(
        without.actions, policy.predict_chunk(observe(2), TokenDecoding(samples=4), noise).actions
    )


def test_guided_samples_come_nearer_to_what_is_committed() -> None:
    policy, rows = policy_of("oat"), 12
    noise = Noise(tuple(range(rows)))
    committed = policy.predict_chunk(observe(rows), TokenDecoding(), Noise(tuple(range(100, 100 + rows)))).actions[
        :, :4
    ]
    gaps = []
    for rule in (Medoid(), Guided()):
        decoding = TokenDecoding(samples=8, choose=rule, commit=4)
        chunk = policy.predict_chunk(observe(rows), decoding, noise, previous=Previous(committed))
        gaps.append(float(((chunk.actions[:, :4] - committed) / policy.action_scale).norm(dim=-1).mean()))
    assert gaps[1] < 0.9 * gaps[0]


def test_guided_without_a_previous_chunk_is_the_medoid() -> None:
    policy, noise = policy_of("oat"), Noise((1, 2))
    guided = TokenDecoding(samples=4, choose=Guided())
    medoid = policy.predict_chunk(observe(2), replace(guided, choose=Medoid()), noise)
    for previous in (None, Previous.of([None, None], DIM)):
        torch.testing.assert_close(
            policy.predict_chunk(observe(2), guided, noise, previous=previous).actions, medoid.actions
        )


def test_the_worse_half_goes_on_from_the_better_one() -> None:
    actions = torch.tensor([3.0, 0.0, 2.0, 1.0, 5.0]).reshape(1, 5, 1, 1)
    candidates = Candidates(actions, torch.ones(1, 5, dtype=torch.bool), 1, previous=torch.zeros(1, 1, 1))
    assert Guided().survivors(candidates, commit=1).tolist() == [[1, 1, 2, 3, 3]]


@pytest.mark.parametrize("stop", [None, Fixed(3), RandomDepth((0.0, 0.5, 0.5))])
def test_exports_guide_to_the_same_tokens(stop: DepthRule | None) -> None:
    policy, folder = exported("oat")
    rests = Previous.of([np.full((4, DIM), 0.2), None, np.full((2, DIM), -0.3)], DIM)
    decoding = TokenDecoding(samples=8, choose=Guided(), commit=2, stop=stop)
    made = [
        list(each.stream(observe(3), decoding, Noise((1, 2, 3)), rests))[-1].tokens
        for each in (policy, load_runtime(folder))
    ]
    whole = policy.predict_chunk(observe(3), decoding, Noise((1, 2, 3)), previous=rests).tokens
    assert made[0] is not None
    assert made[1] is not None
    assert whole is not None
    assert made[0].ids.tolist() == made[1].ids.tolist() == whole.ids.tolist()
    assert made[0].lengths.tolist() == made[1].lengths.tolist() == whole.lengths.tolist()


@pytest.mark.parametrize("kind", ["oat", "diffusion"])
def test_exports_choose_the_same(kind: str) -> None:
    policy, folder = exported(kind)
    runtime, noise = load_runtime(folder), Noise((1, 2, 3))
    torch.testing.assert_close(runtime.action_scale, policy.action_scale)
    rests = Previous.of([np.full((4, DIM), 0.2), None, np.full((2, DIM), -0.3)], DIM)
    weaker = Contrast(policy_of("diffusion" if kind == "oat" else "oat"), "other")
    rules = [
        Medoid(),
        Medoid((1,)),
        Coherent(),
        Contrast(),
        weaker,
        *([Likelihood(), Guided()] if kind == "oat" else []),
    ]
    for rule in rules:
        for commit in (0, 2):
            decoding = _decoding(kind, samples=4, choose=rule, commit=commit, executed=8)
            one, other = (each.predict_chunk(observe(3), decoding, noise, previous=rests) for each in (policy, runtime))
            torch.testing.assert_close(one.actions, other.actions, atol=1e-4, rtol=0)
            assert _ids(one) == _ids(other)
        streamed = [list(each.stream(observe(3), decoding, noise, rests)) for each in (policy, runtime)]
        assert len(streamed[0]) == len(streamed[1]) > 1
        for eager, graph in zip(*streamed, strict=True):
            assert _ids(eager) == _ids(graph)
        torch.testing.assert_close(streamed[0][-1].actions, one.actions)
    assert runtime.predict_chunk(observe(3), decoding, noise, deadline_ms=1e-3).steps.tolist() == [1, 1, 1]


def _ids(chunk: Chunk) -> list[list[int]] | None:
    return None if chunk.tokens is None else chunk.tokens.ids.tolist()


def test_numbers_for_each_position_are_those_of_one_after_the_other() -> None:
    """Exported and eager: the first tokens sampled, the rest nearly greedy."""
    policy, folder = exported("oat")
    noise = Noise((1, 2, 3))
    usual = policy.predict_chunk(observe(3), TokenDecoding(), noise)
    sharp = TokenDecoding(temperature=(1.0, 1.0, 1e-4), top_k=(10, 10, 1))
    assert sharp.name == "K=all T=1,1,0.0001 top-10,10,1"
    for predictor in (policy, load_runtime(folder)):
        chunk = predictor.predict_chunk(observe(3), sharp, noise)
        assert chunk.tokens is not None
        assert usual.tokens is not None
        assert chunk.tokens.ids[:, :2].tolist() == usual.tokens.ids[:, :2].tolist()
    uneven = TokenDecoding(temperature=(0.3, 3.0, 1.0), top_k=(3, None, 20))
    drawn = [_ids(each.predict_chunk(observe(3), uneven, noise)) for each in (policy, load_runtime(folder))]
    even = TokenDecoding(temperature=0.3, top_k=3)
    assert drawn[0] == drawn[1] != _ids(policy.predict_chunk(observe(3), even, noise))
    greedy = policy.predict_chunk(observe(3), TokenDecoding(temperature=(1e-4,), top_k=(None, 1)), noise).tokens
    expected = policy.predict_chunk(observe(3), TokenDecoding(greedy=True), noise).tokens
    assert greedy is not None
    assert expected is not None
    assert greedy.ids.tolist() == expected.ids.tolist()


def test_the_remainder_completes_samples_before_one_is_chosen() -> None:
    policy, noise = knowing("oat", remainder=10.0), Noise((1, 2))
    decoding = TokenDecoding(samples=3, remainder=True)
    completed = _actions(
        [
            policy.predict_chunk(observe(2), TokenDecoding(remainder=True), Noise(noise.repeated(3).keys[n::3]))
            for n in range(3)
        ]
    )
    chosen = policy.predict_chunk(observe(2), decoding, noise)
    assert ((completed - chosen.actions[:, None]).abs().amax((2, 3)).amin(1) < 1e-5).all()


def test_names_and_options() -> None:
    decoding = TokenDecoding(8, 0.7, samples=8, choose=Coherent(), commit=4)
    assert decoding.name == "K=8 T=0.7 coherent-of-8 commit-4"
    assert Denoising(samples=4).name == "10 steps medoid-of-4"
    (made,) = policy_of("oat").decodings(DecodingOptions(samples=4))
    assert made.name == "K=8 medoid-of-4"
    (made,) = knowing("oat", greedy=True).decodings(DecodingOptions(samples=4))
    assert made.name == "K=8 medoid-of-4"  # several samples are sampled
    (made,) = diffusion().decodings(DecodingOptions(samples=4, choose=Coherent()))
    assert made.name == "10 steps coherent-of-4"
    assert set(CHOOSING_RULES) == {"likelihood", "medoid", "coherent", "contrast", "guided"}


def test_different_rules_have_different_names() -> None:
    """Records are told apart by them, so that one evaluation is not taken for another."""
    weaker = policy_of("oat")
    rules = [
        *(Medoid(), Medoid((2,)), Coherent(), Coherent(0.9), Guided(), Guided((1, 3)), Likelihood()),
        *(Contrast(), Contrast(decay=0.9), Contrast(weaker, "abc"), Contrast(weaker, "def")),
    ]
    assert len({rule.label for rule in rules}) == len(rules)
    assert Medoid((2, 6)).label == "medoid(binary 2 6)"
    assert Contrast(weaker, "abc").label == "contrast(weaker abc)"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"samples": 0}, "samples must be at least 1"),
        ({"samples": 3, "greedy": True}, "must be sampled"),
        ({"commit": 2}, "several samples"),
        ({"commit": -1, "samples": 2}, "commit must be"),
        ({"executed": 0}, "executed"),
        ({"temperature": ()}, "temperature"),
        ({"temperature": (1.0, 0.0)}, "temperature"),
        ({"temperature": float("nan")}, "positive and finite"),
        ({"temperature": (1.0, float("inf"))}, "positive and finite"),
        ({"choose": Coherent()}, "coherent chooses among several samples: 1 is drawn"),
        ({"top_k": (3, 0)}, "top_k"),
    ],
)
def test_numbers_that_cannot_be(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        TokenDecoding(**options)


def _knowing_one_task() -> BasePredictor:
    return autoregressive("oat", replace(CONTEXT, tasks=("push",)))


def test_what_a_rule_cannot_do_is_refused_before_anything_runs() -> None:
    policy, other = policy_of("oat"), autoregressive("oat")
    other.space = ActionSpace(HORIZON, DIM + 1)
    refusals: list[tuple[BasePredictor, SampledDecoding, str]] = [
        (policy, TokenDecoding(samples=2, choose=Contrast(other)), "the weaker policy's chunks"),
        (policy_of("quest"), TokenDecoding(samples=2, choose=Contrast()), "needs a weaker policy"),
        (policy_of("quest"), TokenDecoding(samples=2, choose=Guided()), "every prefix decodes"),
        (diffusion(), Denoising(samples=2, choose=Guided()), "every prefix decodes"),
        (policy, TokenDecoding(samples=2, choose=Medoid((7,))), "binary dimensions"),
        (policy, TokenDecoding(samples=2, commit=HORIZON), "commit must be below"),
        (policy, TokenDecoding(samples=2, executed=HORIZON + 1), "executed"),
        (diffusion(), Denoising(samples=2, executed=HORIZON + 1), "executed"),
        (policy, TokenDecoding(samples=2, choose=Coherent(), executed=HORIZON), "execute fewer than all"),
        (policy, TokenDecoding(samples=2, commit=2, executed=HORIZON), "commit looks at the rest"),
        (policy, TokenDecoding(samples=2, choose=Contrast(_knowing_one_task())), "does not know the task 'pull'"),
        (policy, TokenDecoding(stop=Fixed(9)), "fixed=9 must stop after 1…8 tokens"),
        (policy, TokenDecoding(num_tokens=4, stop=Fixed(6)), "fixed=6 must stop after 1…4 tokens"),
        (diffusion(), Denoising(samples=2, choose=Likelihood()), "no likelihood"),
    ]
    for predictor, decoding, reason in refusals:
        with pytest.raises(InvalidOption, match=reason):
            predictor.check_decoding(decoding)
    with pytest.raises(InvalidOption, match="expected 2 rows"):
        policy.predict_chunk(observe(2), TokenDecoding(samples=2), previous=Previous.of([None], DIM))
    with pytest.raises(OatError, match="choosing rule"):
        make_choosing_rule("best")
    with pytest.raises(InvalidOption, match="belongs to medoid"):
        make_choosing_rule("coherent", binary=(1,))
