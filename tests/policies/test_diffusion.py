"""The diffusion policy: its schedule and steps are those of diffusers' DDIM, padded steps do not count."""

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor

from oat.errors import InvalidOption
from oat.policies import Denoising, Noise, TokenDecoding
from oat.policies.denoising_predictor import TRAINING_STEPS, ddim_step, ddim_times, signal_levels
from oat.policies.diffusion import add_noise
from tests.policies.small import diffusion, observe
from tests.tokenizers.fitted import DIM, HORIZON, smooth_chunks

LOW, HIGH = -torch.ones(DIM), torch.ones(DIM)


@pytest.fixture(scope="module")
def scheduler() -> Any:
    return importlib.import_module("diffusers").DDIMScheduler(
        num_train_timesteps=TRAINING_STEPS,
        beta_schedule="squaredcos_cap_v2",
        clip_sample=True,
        prediction_type="epsilon",
        set_alpha_to_one=True,
    )


def _model(sample: Tensor, time: int) -> Tensor:
    """Some fixed function that is sensitive to both."""
    mixed = sample @ torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(0))
    return torch.sin(3 * mixed + time) + 0.5 * sample


def test_the_schedule_is_diffusers_s(scheduler: Any) -> None:
    torch.testing.assert_close(signal_levels(), scheduler.alphas_cumprod, atol=1e-6, rtol=1e-4)
    assert (signal_levels()[1:] < signal_levels()[:-1]).all()


def test_noise_is_added_as_diffusers_does(scheduler: Any) -> None:
    clean, noise = smooth_chunks(TRAINING_STEPS, 1), smooth_chunks(TRAINING_STEPS, 2)
    times = torch.arange(TRAINING_STEPS)
    expected = scheduler.add_noise(clean, noise, times)
    torch.testing.assert_close(add_noise(clean, noise, signal_levels()), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("steps", [1, 5, 7, 10, 20, 100])
def test_denoising_is_diffusers_s(scheduler: Any, steps: int) -> None:
    """Every step of the whole loop, each from the sample before it."""
    scheduler.set_timesteps(steps)
    times, levels = ddim_times(steps), signal_levels()
    assert scheduler.timesteps.tolist() == times
    ours = theirs = torch.randn(4, HORIZON, DIM, generator=torch.Generator().manual_seed(3))
    for number, time in enumerate(times):
        expected = scheduler.step(_model(theirs, time), time, theirs)
        then = torch.ones(()) if number + 1 == steps else levels[times[number + 1]]
        ours, clean = ddim_step(ours, _model(ours, time), levels[time], then, LOW, HIGH)
        theirs = expected.prev_sample
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-3)
        torch.testing.assert_close(clean, expected.pred_original_sample, atol=2e-4, rtol=1e-3)
        ours = theirs  # rounding would grow in a model as wild as this
    assert torch.equal(clean.abs() <= 1, torch.ones_like(clean, dtype=torch.bool))
    torch.testing.assert_close(ours, clean, atol=1e-5, rtol=1e-5)  # nothing but the clean chunk is left


@pytest.mark.parametrize("steps", [5, 10, 20])
def test_the_policy_generates_what_diffusers_would(scheduler: Any, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, noise = diffusion(), Noise((11, 12))
    asked: list[int] = []

    def predict(context: Tensor, noised: Tensor, time: Tensor) -> Tensor:
        asked.append(int(time[0]))
        return _model(noised, int(time[0]))

    monkeypatch.setattr(policy, "predict_noise", predict)
    chunk = policy.predict_chunk(observe(2), Denoising(steps), noise)
    scheduler.set_timesteps(steps)
    sample = noise.normal(HORIZON, DIM)
    for time in scheduler.timesteps.tolist():
        sample = scheduler.step(_model(sample, time), time, sample).prev_sample
    assert asked == scheduler.timesteps.tolist()
    torch.testing.assert_close(chunk.actions, 2 * sample, atol=5e-3, rtol=1e-2)  # the normaliser's range is ±2


def test_clean_chunks_are_kept_within_the_range_of_the_data() -> None:
    policy = diffusion()
    policy.normalizer.low.copy_(torch.tensor([-0.1, -1.0, -0.3]))
    policy.normalizer.high.copy_(torch.tensor([0.1, 0.0, 0.5]))
    actions = policy.predict_chunk(observe(4)).actions
    assert (actions >= 2 * policy.normalizer.low - 1e-6).all()
    assert (actions <= 2 * policy.normalizer.high + 1e-6).all()


def _losses(actions: Tensor, valid: Tensor, seed: int = 0) -> Tensor:
    policy = diffusion()
    generator = torch.Generator().manual_seed(seed)
    return policy(*policy.context.read(observe(len(actions))), actions, valid, generator)


@torch.no_grad()
def test_padded_steps_do_not_count_in_the_loss() -> None:
    """Only the error of valid steps is averaged: of a row with one valid step, that step's."""
    policy, actions = diffusion(), smooth_chunks(3).clamp(-1, 1)
    valid = torch.arange(HORIZON) < torch.tensor([HORIZON, 5, 1])[:, None]
    drawn = torch.Generator().manual_seed(0)
    time = torch.randint(TRAINING_STEPS, (3,), generator=drawn)
    noise = torch.randn(actions.shape, generator=drawn)
    context = policy.context(*policy.context.read(observe(3)))
    predicted = policy.predict_noise(context, add_noise(actions, noise, signal_levels()[time]), time)
    squares = (predicted - noise).square().mean(-1)
    expected = torch.stack([squares[0].mean(), squares[1, :5].mean(), squares[2, 0]])
    torch.testing.assert_close(_losses(actions, valid), expected)


def test_it_learns_one_chunk_by_heart() -> None:
    policy, rows = diffusion().train(), 4
    clean = smooth_chunks(rows, 5).clamp(-1, 1) * 0.5
    values, tasks = policy.context.read(observe(rows))
    valid = torch.ones(rows, HORIZON, dtype=torch.bool)
    optimizer, losses = torch.optim.AdamW(policy.parameters(), 3e-3, weight_decay=0.0), []
    repeat = torch.arange(rows).repeat(16)
    for step in range(150):
        batch = ({key: value[repeat] for key, value in values.items()}, tasks[repeat], clean[repeat], valid[repeat])
        loss = policy(*batch, torch.Generator().manual_seed(step)).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-20:]) < 0.25 * sum(losses[:20])
    actions = policy.predict_chunk(observe(rows)).actions
    errors = (actions[:, None] - 2 * clean).square().mean((2, 3))  # of every row's chunk to every row's target
    assert torch.equal(errors.argmin(1), torch.arange(rows))


def test_stream_gives_one_chunk_for_each_step() -> None:
    policy, noise = diffusion(), Noise((1, 2))
    chunks = list(policy.stream(observe(2), Denoising(6), noise))
    assert [chunk.steps.tolist() for chunk in chunks] == [[n, n] for n in range(1, 7)]
    assert all(chunk.valid.all() and chunk.tokens is None and chunk.log_probabilities is None for chunk in chunks)
    assert torch.equal(chunks[-1].actions, policy.predict_chunk(observe(2), Denoising(6), noise).actions)
    assert not torch.allclose(chunks[0].actions, chunks[-1].actions, atol=1e-3)


def test_ten_steps_unless_told() -> None:
    assert diffusion().predict_chunk(observe(1)).steps.tolist() == [10]


@pytest.mark.parametrize("decoding", [TokenDecoding(), Denoising(101)])
def test_what_it_cannot_do_is_refused_at_the_call(decoding: Any) -> None:
    policy = diffusion()
    for method in (policy.predict_chunk, policy.stream):
        with pytest.raises(InvalidOption, match=r"decodes by Denoising|must be 1…100, got 101"):
            method(observe(1), decoding)


def test_no_steps_make_no_sense() -> None:
    with pytest.raises(InvalidOption, match="at least one"):
        Denoising(0)
