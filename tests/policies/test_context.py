"""What a policy sees: checked before anything is computed, normalised by training episodes, cropped the same way."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from oat.data.episodes import STATE, Episodes, open_dataset
from oat.errors import InvalidObservation, InvalidOption, OatError, UnknownName
from oat.interfaces import Observation
from oat.nn.vision import ConvolutionalVision, SpatialSoftmax, crop, crop_offsets
from oat.policies.context import ContextConfig, ContextEncoder, VisionConfig, describe_context
from tests.datasets import CAMERA, WRITERS, make_episodes
from tests.policies.small import STATE_DIM, autoregressive, diffusion, regression

GOAL = "observation.goal"
EYES = ContextConfig(
    vectors=(STATE, GOAL),
    vector_dims=(STATE_DIM, 2),
    cameras=(CAMERA,),
    camera_sizes=((20, 24),),
    tasks=("push", "pull"),
)


def _values(rows: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        STATE: random.normal(size=(rows, 2, STATE_DIM)).astype(np.float32),
        GOAL: random.normal(size=(rows, 2, 2)),
        CAMERA: random.integers(0, 256, (rows, 2, 20, 24, 3), dtype=np.uint8),
    }


def _with_nan(value: np.ndarray, number: float = np.nan) -> np.ndarray:
    value = value.copy()
    value[1, 0, 2] = number
    return value


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda v: v.pop(CAMERA), InvalidObservation, f"lacks '{CAMERA}'; it needs {STATE}, {GOAL}, {CAMERA}"),
        (lambda v: v.pop(STATE), InvalidObservation, f"lacks '{STATE}'"),
        (lambda v: v.update({STATE: v[STATE][:, :1]}), InvalidObservation, r"must be \(2, 2, 4\) .* got \(2, 1, 4\)"),
        (lambda v: v.update({STATE: v[STATE][:, :, :3]}), InvalidObservation, r"got \(2, 2, 3\)"),
        (lambda v: v.update({STATE: v[STATE][0]}), InvalidObservation, r"got \(2, 4\)"),
        (lambda v: v.update({STATE: v[STATE][:1]}), InvalidObservation, r"got \(1, 2, 4\)"),
        (lambda v: v.update({CAMERA: v[CAMERA].transpose(0, 1, 4, 2, 3)}), InvalidObservation, r"\(2, 2, 3, 20, 24\)"),
        (lambda v: v.update({CAMERA: v[CAMERA] / 255.0}), InvalidObservation, "must be uint8 images, got float64"),
        (lambda v: v.update({STATE: np.ones((2, 2, 4), int)}), InvalidObservation, "floating-point numbers, got int64"),
        (lambda v: v.update({STATE: _with_nan(v[STATE])}), InvalidObservation, rf"{STATE}\[1, 0, 2\] is nan"),
        (lambda v: v.update({STATE: _with_nan(v[STATE], np.inf)}), InvalidObservation, "is inf"),
        (lambda v: v.update({STATE: _with_nan(v[STATE].astype(float), 1e200)}), InvalidObservation, "is 1e"),
    ],
)
@pytest.mark.parametrize("make", [diffusion, regression, lambda context: autoregressive("oat", context)])
def test_bad_observations_are_refused_before_anything_is_computed(
    make: Callable[[ContextConfig], Any],
    change: Callable[[dict[str, Any]], object],
    error: type[OatError],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, values = make(EYES), _values()
    monkeypatch.setattr(torch.nn.Linear, "forward", _never)
    monkeypatch.setattr(torch.nn.Conv2d, "forward", _never)
    change(values)
    for call in (policy.predict_chunk, policy.stream):
        with pytest.raises(error, match=message):
            call(Observation(values, ("push", "pull")))
    with pytest.raises(error, match=message):
        policy.predict_chunk(Observation(values, ("push", "pull")), pad_to=4)


def _never(*_: object) -> Tensor:
    raise AssertionError("something was computed")


def test_an_unknown_task_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = diffusion(EYES)
    monkeypatch.setattr(torch.nn.Linear, "forward", _never)
    with pytest.raises(
        UnknownName, match=r"unknown task 'pusj'. Did you mean 'push' or 'pull'\? Available: pull, push"
    ):
        policy.predict_chunk(Observation(_values(), ("push", "pusj")))


def test_no_rows_are_refused() -> None:
    with pytest.raises(InvalidObservation, match="no rows"):
        diffusion(EYES).predict_chunk(Observation(_values(0), ()))


def test_more_than_is_needed_is_ignored() -> None:
    policy, values = diffusion(EYES), _values()
    plain = policy.predict_chunk(Observation(values, ("push", "pull")))
    more = policy.predict_chunk(Observation({**values, "observation.extra": np.zeros(3)}, ("push", "pull")))
    assert torch.equal(plain.actions, more.actions)


def test_tokens_per_frame_and_one_for_the_task() -> None:
    torch.manual_seed(0)
    encoder = ContextEncoder(EYES, 32).eval()
    with torch.no_grad():
        tokens = encoder(*encoder.read(Observation(_values(), ("push", "pull"))))
        other = encoder(*encoder.read(Observation(_values(), ("pull", "pull"))))
    assert tokens.shape == (2, 2 * 2 + 1, 32)
    changed = (tokens != other).any(-1)
    assert changed.tolist() == [[False] * 4 + [True], [False] * 5]


@pytest.mark.parametrize(("key", "frame", "place"), [(STATE, 0, 0), (CAMERA, 0, 1), (GOAL, 1, 2), (CAMERA, 1, 3)])
def test_every_observation_has_its_token(key: str, frame: int, place: int) -> None:
    torch.manual_seed(0)
    encoder, values = ContextEncoder(EYES, 32).eval(), _values()
    changed = {**values, key: values[key].copy()}
    changed[key][0, frame] = 1 - changed[key][0, frame]
    with torch.no_grad():
        one, two = (encoder(*encoder.read(Observation(v, ("push", "push")))) for v in (values, changed))
    assert (one != two).any(-1).nonzero().tolist() == [[0, place]]


def _episodes() -> Episodes:
    random = np.random.default_rng(0)
    states = random.normal(size=(60, 4)).astype(np.float32) * np.array([1, 10, 0, 5], np.float32) + 3
    states[40:] += 1000  # the last two episodes are somewhere else
    goals = random.normal(size=(60, 2)).astype(np.float32)
    return Episodes.from_arrays(
        np.zeros((60, 3), np.float32), [10] * 6, ["push", "pull"] * 3, observations={STATE: states, GOAL: goals}
    )


def test_states_are_normalised_by_the_training_episodes_alone() -> None:
    episodes = _episodes()
    encoder = ContextEncoder(describe_context(episodes, (STATE, GOAL)), 16)
    assert encoder.config.vector_dims == (4, 2)
    assert encoder.config.tasks == ("push", "pull")
    encoder.fit(episodes.select([0, 1, 2, 3]))
    states, goals = (episodes.observations[key][np.arange(40)] for key in (STATE, GOAL))
    seen = np.concatenate([states, goals], axis=1)
    low, high = np.quantile(seen, (0.01, 0.99), axis=0)
    middle = encoder.normalizer.normalize(torch.from_numpy((low + high) / 2).float())
    torch.testing.assert_close(middle, torch.zeros(6), atol=0.05, rtol=0)
    normalised = encoder.normalizer.normalize(torch.from_numpy(seen))
    assert normalised[:, [0, 1, 3, 4, 5]].abs().amax(0).min() > 0.9
    assert normalised.abs().max() < 2
    assert (normalised[:, 2] == 0).all()  # it never moved
    far = encoder.normalizer.normalize(torch.full((1, 6), 1e6))
    assert far[0, [0, 1, 3, 4, 5]].tolist() == [3.0] * 5  # what was never seen is brought near


def test_a_policy_must_observe_vectors_or_images() -> None:
    episodes = _episodes()
    with pytest.raises(InvalidOption, match="must observe something"):
        describe_context(episodes, ())
    with pytest.raises(UnknownName, match=r"observation\.stat"):
        describe_context(episodes, ("observation.stat",))
    depth = replace(episodes, observations={"observation.depth": np.zeros((60, 8, 8), np.float32)})
    with pytest.raises(InvalidOption, match="states must be vectors"):
        describe_context(depth, ("observation.depth",))


@pytest.mark.parametrize("crop", [0.0, -1.0, 1.5])
def test_impossible_crops_are_refused(crop: float) -> None:
    with pytest.raises(InvalidOption, match="crop must be in"):
        VisionConfig(crop=crop)


@pytest.mark.parametrize("channels", [(), (16, 0), (12, 16)])
def test_impossible_convolutions_are_refused(channels: tuple[int, ...]) -> None:
    with pytest.raises(InvalidOption, match="multiples of 8"):
        VisionConfig(channels=channels)


def test_convolutions_are_as_wide_as_configured() -> None:
    encoder = ContextEncoder(replace(EYES, vision=VisionConfig(channels=(8, 24))), 32)
    vision = encoder.vision["0"]
    assert isinstance(vision, ConvolutionalVision)
    assert vision.stem.out_channels == 8
    assert vision.features == 48
    assert encoder(*encoder.read(Observation(_values(), ("push", "push")))).shape[-1] == 32


def test_only_a_backbone_can_be_frozen() -> None:
    with pytest.raises(InvalidOption, match="cannot be frozen"):
        VisionConfig(frozen=True)


def _images(rows: int = 40) -> Tensor:
    return torch.randint(0, 256, (rows, 2, 20, 24, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_crops_are_slices_the_same_for_all_frames() -> None:
    images = _images()
    offsets = crop_offsets(images, (18, 15), torch.Generator().manual_seed(1))
    cropped = crop(images, (18, 15), offsets)
    for row, (top, left) in enumerate(offsets.tolist()):
        assert torch.equal(cropped[row], images[row, :, top : top + 18, left : left + 15])
    assert set(offsets[:, 0].tolist()) == {0, 1, 2}
    assert set(offsets[:, 1].tolist()) == set(range(10))


def test_the_centre_in_use_and_random_in_training() -> None:
    images = _images(4)
    assert crop_offsets(images, (18, 15), None).tolist() == [[1, 4]] * 4
    one, two = (crop_offsets(images, (18, 15), torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert torch.equal(one, crop_offsets(images, (18, 15), torch.Generator().manual_seed(1)))
    assert not torch.equal(one, two)
    assert crop_offsets(images, (20, 24), torch.Generator().manual_seed(1)).tolist() == [[0, 0]] * 4


@torch.no_grad()
def test_only_the_centre_matters_in_use() -> None:
    """Pixels outside the centre crop change nothing in evaluation, and something in training."""
    torch.manual_seed(0)
    encoder, values = ContextEncoder(EYES, 32).eval(), _values()
    framed = values[CAMERA].copy()
    framed[:, :, 1:19, 1:23] = 7
    inside = values[CAMERA].copy()
    inside[:, :, :1], inside[:, :, 19:], inside[:, :, :, :1], inside[:, :, :, 23:] = 0, 0, 0, 0
    read = [
        encoder.read(Observation({**values, CAMERA: v}, ("push", "push"))) for v in (values[CAMERA], inside, framed)
    ]
    centre = [encoder(*each) for each in read]
    assert torch.equal(centre[0], centre[1])
    assert not torch.allclose(centre[0], centre[2])
    random = [encoder(*each, torch.Generator().manual_seed(3)) for each in read]
    assert not torch.allclose(random[0], random[1])


@pytest.mark.parametrize(("row", "column"), [(0, 0), (4, 8), (2, 4), (4, 2), (1, 7)])
def test_spatial_softmax_finds_a_bright_spot(row: int, column: int) -> None:
    maps = torch.zeros(1, 2, 5, 9)
    maps[0, 0, row, column] = maps[0, 1, 2, 3] = 100.0
    x, other_x, y, other_y = SpatialSoftmax()(maps)[0].tolist()
    assert (x, y) == pytest.approx((column / 4 - 1, row / 2 - 1), abs=1e-5)
    assert (other_x, other_y) == pytest.approx((3 / 4 - 1, 0), abs=1e-5)


def test_images_are_seen_as_numbers_from_minus_one_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, seen = ContextEncoder(EYES, 32).eval(), []
    values = _values()
    values[CAMERA][0], values[CAMERA][1] = 0, 255
    vision = encoder.vision["0"]
    assert isinstance(vision, ConvolutionalVision)

    def watch(pixels: Tensor) -> Tensor:
        seen.append(pixels)
        return torch.zeros(4, 32, 9, 11)

    monkeypatch.setattr(vision.stem, "forward", watch)
    encoder(*encoder.read(Observation(values, ("push", "push"))))
    (pixels,) = seen
    assert pixels.shape == (4, 3, 18, 22)
    assert (pixels[:2] == -1).all()
    assert (pixels[2:] == 1).all()


def test_a_policy_of_images_alone() -> None:
    context = replace(EYES, vectors=(), vector_dims=())
    chunk = diffusion(context).predict_chunk(Observation({CAMERA: _values()[CAMERA]}, ("push", "pull")))
    assert torch.isfinite(chunk.actions).all()


@pytest.mark.parametrize("writer", ["lerobot-video", "npz"])
def test_cameras_and_sizes_come_from_the_data(writer: str, tmp_path: Path) -> None:
    episodes = open_dataset(WRITERS[writer](tmp_path, make_episodes()))
    context = describe_context(episodes, (STATE, CAMERA))
    assert context.cameras == (CAMERA,)
    assert context.camera_sizes == ((32, 48),)
    assert context.sizes() == {STATE: (4,), CAMERA: (32, 48, 3)}
