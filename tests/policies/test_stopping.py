"""Deadlines: as many steps as fit, judged by how long they took before; never fewer than one."""

import itertools
import time
from unittest.mock import patch

import pytest
import torch

from oat.errors import InvalidOption
from oat.export.loading import load_runtime
from oat.policies import BasePredictor, Denoising, Noise, TokenDecoding
from oat.policies.choosing import Guided
from oat.policies.stopping import Deadline, StepTimes
from tests.export.exported import exported
from tests.policies.small import observe, policy_of

ANYTIME = ("oat", "diffusion", "exported")


def _predictor(kind: str) -> BasePredictor:
    return load_runtime(exported("oat")[1]) if kind == "exported" else policy_of(kind)


@pytest.fixture
def every_glance_takes_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which every step and every chunk takes one millisecond."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) / 1e3)


@pytest.mark.usefixtures("every_glance_takes_a_millisecond")
@pytest.mark.parametrize("kind", ANYTIME)
@pytest.mark.parametrize("samples", [1, 4])
def test_it_stops_when_one_more_step_would_be_late(kind: str, samples: int) -> None:
    policy, noise = _predictor(kind), Noise((1, 2))
    decoding = Denoising(samples=samples) if kind == "diffusion" else TokenDecoding(samples=samples)
    policy.warm_up(2, decoding)
    streamed = list(policy.stream(observe(2), decoding, noise))
    for milliseconds in (1.5, 3.5, 5.5, 100):
        chunk = policy.predict_chunk(observe(2), decoding, noise, deadline_ms=milliseconds)
        steps = min(max(1, int(milliseconds) - 1), len(streamed))  # one millisecond is left for making the chunk
        assert chunk.steps.tolist() == [steps, steps]
        torch.testing.assert_close(chunk.actions, streamed[steps - 1].actions)


@pytest.mark.usefixtures("every_glance_takes_a_millisecond")
def test_estimates_belong_to_a_number_of_rows() -> None:
    policy = policy_of("oat")
    policy.warm_up(3)
    assert policy.predict_chunk(observe(3), deadline_ms=100).steps.tolist() == [8, 8, 8]
    assert policy.predict_chunk(observe(2), pad_to=3, deadline_ms=100).steps.tolist() == [8, 8]
    assert policy.predict_chunk(observe(2), deadline_ms=100).steps.tolist() == [1, 1]  # nothing is known of two
    assert policy.predict_chunk(observe(2), deadline_ms=100).steps.tolist() == [8, 8]


def test_first_chunks_are_made_as_later_ones_are() -> None:
    """Also where samples are compared with the rest of a previous chunk, which takes its time."""
    policy = policy_of("oat")
    with patch.object(Guided, "survivors", autospec=True, side_effect=Guided.survivors) as compared:
        policy.warm_up(2, TokenDecoding(samples=4, choose=Guided(), commit=2, executed=8))
    assert compared.called


def test_careful_estimates_follow_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def count_steps(milliseconds: float, step: float, finish: float, times: StepTimes) -> int:
        nonlocal now
        watch = Deadline(milliseconds)
        watch.start(times)
        steps = 0
        while steps < 8:
            now, steps = now + step / 1e3, steps + 1
            if watch.wants_chunk():
                break
        now += finish / 1e3
        watch.got_chunk()
        return steps

    times = StepTimes()
    assert count_steps(1000, 1, 2, times) == 1
    assert count_steps(1000, 1, 2, times) == 8
    assert count_steps(7.5, 1, 2, times) == 5
    for _ in range(30):
        count_steps(1e9, 2, 2, times)  # the machine is busy now
    assert count_steps(7.5, 1, 2, times) == 4  # it has heard, and does not yet believe that this is over
    for _ in range(30):
        count_steps(1e9, 1, 2, times)
    assert count_steps(7.5, 1, 2, times) == 5


@pytest.mark.parametrize("kind", [*ANYTIME, "regression"])
def test_real_time(kind: str) -> None:
    policy = _predictor(kind)
    policy.warm_up(1)
    assert policy.predict_chunk(observe(1), deadline_ms=1e-3).steps.tolist() == [1]
    whole = policy.predict_chunk(observe(1), deadline_ms=1e6)
    assert torch.equal(whole.actions, policy.predict_chunk(observe(1)).actions)


def test_the_decoding_still_holds() -> None:
    policy = policy_of("oat")
    policy.warm_up(1)
    assert policy.predict_chunk(observe(1), TokenDecoding(num_tokens=3), deadline_ms=1e6).steps.tolist() == [3]
    assert policy.predict_chunk(observe(1), TokenDecoding(num_actions=5)).actions.shape == (1, 5, 3)
    diffusion = policy_of("diffusion")
    diffusion.warm_up(1)
    assert diffusion.predict_chunk(observe(1), Denoising(4), deadline_ms=1e6).steps.tolist() == [4]


@pytest.mark.parametrize("kind", ["bin", "fast", "quest"])
def test_without_prefixes_there_is_no_deadline(kind: str) -> None:
    with pytest.raises(InvalidOption, match="every prefix decodes"):
        policy_of(kind).predict_chunk(observe(1), deadline_ms=10)


@pytest.mark.parametrize("milliseconds", [0, -1, float("nan")])
def test_a_deadline_lies_ahead(milliseconds: float) -> None:
    with pytest.raises(InvalidOption, match="positive"):
        policy_of("oat").predict_chunk(observe(1), deadline_ms=milliseconds)
