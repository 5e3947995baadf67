"""Rows that stop alone: tokens chosen before do not change, rows do not know of each other, all runtimes agree."""

import math
from pathlib import Path

import pytest
import torch

from oat.errors import CheckpointError, InvalidOption
from oat.export.loading import load_runtime
from oat.io.training_record import TrainingRecord
from oat.policies import AutoregressivePolicy, BasePredictor, Noise, TokenDecoding
from oat.policies.error_head import ErrorHead
from oat.policies.stopping import DepthRule, Fixed, Hindsight, RandomDepth, Residual, Value
from tests.export.exported import exported
from tests.policies.small import autoregressive, choose_rows, head_of, observe, policy_of

NOISE = Noise(tuple(range(6)))


def rules(policy: AutoregressivePolicy) -> list[DepthRule]:
    head = head_of(policy)
    return [Fixed(3), RandomDepth((0.2, 0.3, 0.0, 0.5)), Residual(1.2, head), Value(0.05, head), Hindsight(0.3)]


def _ids(predictor: BasePredictor, decoding: TokenDecoding, noise: Noise = NOISE) -> list[list[int]]:
    tokens = predictor.predict_chunk(observe(len(noise)), decoding, noise).tokens
    assert tokens is not None
    return tokens.tolist()


def test_stopping_early_never_changes_tokens_already_chosen() -> None:
    policy = autoregressive("oat")
    whole = _ids(policy, TokenDecoding())
    for rule in rules(policy):
        chunk = policy.predict_chunk(observe(6), TokenDecoding(stop=rule), NOISE)
        assert chunk.tokens is not None
        depths = chunk.steps.tolist()
        assert chunk.tokens.tolist() == [row[:depth] for row, depth in zip(whole, depths, strict=True)]
        for row, depth in enumerate(depths):
            alone = policy.predict_chunk(observe(6), TokenDecoding(num_tokens=depth), NOISE)
            torch.testing.assert_close(chunk.actions[row], alone.actions[row], atol=1e-5, rtol=0)
        assert len(set(depths)) > 1 or isinstance(rule, Fixed), "this rule should tell rows apart"


def test_rows_stop_alone() -> None:
    policy = autoregressive("oat")
    for rule in rules(policy):
        for decoding in (TokenDecoding(stop=rule), TokenDecoding(stop=rule, samples=3)):
            together = _ids(policy, decoding)
            for row in (0, 3, 5):
                noise = Noise(NOISE.keys[row : row + 1])
                alone = policy.predict_chunk(choose_rows(observe(6), [row]), decoding, noise, pad_to=6)
                assert alone.tokens is not None
                assert alone.tokens.tolist() == [together[row]]


def test_exports_and_streams_stop_alike() -> None:
    policy, folder = exported("oat")
    assert isinstance(policy, AutoregressivePolicy)
    runtime = load_runtime(folder)
    assert runtime.identity == policy.identity
    for rule in rules(policy):
        for decoding in (TokenDecoding(stop=rule), TokenDecoding(stop=rule, samples=2)):
            assert _ids(policy, decoding) == _ids(runtime, decoding)
    decoding = TokenDecoding(stop=rules(policy)[2])
    depths = runtime.predict_chunk(observe(6), decoding, NOISE).steps
    streamed = [chunk.steps.tolist() for chunk in runtime.stream(observe(6), decoding, NOISE)]
    assert streamed == [depths.clamp(max=count).tolist() for count in range(1, int(depths.max()) + 1)]
    assert runtime.predict_chunk(observe(6), decoding, NOISE, deadline_ms=1e-3).steps.tolist() == [1] * 6


@pytest.mark.parametrize("executed", [None, 4])
def test_hindsight_keeps_the_fewest_tokens_that_do_nearly_what_all_do(executed: int | None) -> None:
    policy, epsilon = autoregressive("oat"), 0.3
    prefixes = [policy.predict_chunk(observe(6), TokenDecoding(count), NOISE).actions for count in range(1, 9)]
    expected = []
    for row in range(6):
        whole = prefixes[-1][row, :executed]
        errors = [float((each[row, :executed] - whole).square().mean().sqrt()) for each in prefixes]
        expected.append(next(count for count, error in enumerate(errors, start=1) if error <= epsilon))
    found = policy.predict_chunk(observe(6), TokenDecoding(stop=Hindsight(epsilon), executed=executed), NOISE)
    assert found.steps.tolist() == expected
    assert len(set(expected)) > 1


def test_random_depth_has_the_distribution_it_is_given() -> None:
    rule = RandomDepth.like({1: 10, 2: 30, 8: 60})
    assert list(rule.shares) == [0.1, 0.3, 0, 0, 0, 0, 0, 0.6]
    assert rule.name == "random-depth=10/30/0/0/0/0/0/60"
    policy = autoregressive("oat")
    count = 2000
    depths = policy.predict_chunk(observe(count), TokenDecoding(stop=rule), Noise(tuple(range(count)))).steps
    shares = torch.bincount(depths, minlength=9)[1:] / count
    expected = torch.tensor(rule.shares)
    assert ((shares - expected).abs() < 4 * (expected * (1 - expected) / count).sqrt() + 1e-9).all()


def test_a_head_is_saved_and_refuses_what_it_was_not_made_for(tmp_path: Path) -> None:
    policy = autoregressive("oat")
    head = head_of(policy)
    head.save(tmp_path / "head", TrainingRecord(seed=3))
    again = ErrorHead.load(tmp_path / "head")
    for rule in (Residual(1.2, head), Residual(1.2, again)):
        assert _ids(policy, TokenDecoding(stop=rule)) == _ids(policy, TokenDecoding(stop=Residual(1.2, head)))
    other = autoregressive("oat")
    torch.nn.init.normal_(other.embedding.weight, std=0.2)
    with pytest.raises(InvalidOption, match="belongs to policy"):
        other.check_decoding(TokenDecoding(stop=Residual(1.0, again)))
    # The same policy over another tokenizer: the same tokens mean other chunks.
    retold = autoregressive("oat")
    next(retold.tokenizer.parameters()).data.mul_(1.01)
    with pytest.raises(InvalidOption, match="over another tokenizer"):
        retold.check_decoding(TokenDecoding(stop=Residual(1.0, again)))
    retrained = head_of(policy)
    retrained.margin.mul_(2.0)
    names = {Residual(1.0, each).name for each in (head, again, retrained)}
    assert len(names) == 2  # records tell heads apart, and a copy is the same one
    with pytest.raises(InvalidOption, match="calibrated for 8 executed actions, got 4"):
        policy.check_decoding(TokenDecoding(stop=Value(1.0, again), executed=4))
    policy.check_decoding(TokenDecoding(stop=Value(1.0, again), executed=8))
    policy.save(tmp_path / "policy")
    with pytest.raises(CheckpointError, match="error_head"):
        ErrorHead.load(tmp_path / "policy")


def test_a_head_that_is_not_calibrated_stops_nothing() -> None:
    policy = autoregressive("oat")
    head = head_of(policy)
    head.margin.fill_(math.inf)
    stopped = policy.predict_chunk(observe(6), TokenDecoding(stop=Residual(1e6, head)), NOISE)
    assert stopped.steps.tolist() == [policy.longest] * 6


@pytest.mark.parametrize("number", [0.0, -1.0, math.inf, math.nan])
def test_bounds_and_prices_are_positive(number: float) -> None:
    head = head_of(autoregressive("oat"))
    with pytest.raises(InvalidOption, match="positive"):
        Residual(number, head)
    with pytest.raises(InvalidOption, match="positive"):
        Value(number, head)


def test_depths_that_cannot_be() -> None:
    with pytest.raises(InvalidOption, match="at least one token"):
        Fixed(0)
    for shares in ((), (0.5, 0.6), (-0.5, 1.5)):
        with pytest.raises(InvalidOption, match="shares"):
            RandomDepth(shares)
    with pytest.raises(InvalidOption, match="no chunks"):
        RandomDepth.like({})
    for kind in ("bin", "fast", "quest"):
        with pytest.raises(InvalidOption, match="no prefixes that decode"):
            policy_of(kind).check_decoding(TokenDecoding(stop=Fixed(2)))
