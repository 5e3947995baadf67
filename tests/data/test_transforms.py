"""Every action transform has an exact inverse on its domain, leaves other dimensions alone, and refuses the rest."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oat.data.rotations import axis_angle_to_matrix, quaternion_to_matrix, sixd_to_matrix
from oat.data.transforms import (
    TRANSFORMS,
    ActionTransform,
    Chain,
    Delta,
    Identity,
    Relative,
    Rotation6D,
    UnwrapAngles,
)
from oat.errors import TransformError, UnknownName

# Actions: x, y, z, a rotation vector, a gripper. The state has the same layout, then two more numbers.
VALUES: list[ActionTransform] = [
    Identity(),
    Relative(dims=(0, 1, 2)),
    Relative(dims=(0, 1, 2), state_dims=(6, 7, 8)),
    Delta(),
    Delta(dims=(0, 1, 2, 3, 4, 5)),
    Delta(dims=(0, 1, 2), first_step="from_state"),
    UnwrapAngles(dims=(3, 5)),
    UnwrapAngles(dims=(3, 4, 5), first_step="near_state"),
    Rotation6D(start=3),
    Chain((UnwrapAngles(dims=(4,), first_step="near_state"), Relative(dims=(0, 1, 4)))),
    Chain((Rotation6D(start=3), Delta(dims=(0, 1, 2)))),
    Chain(()),
]


def sample(seed: int, batch: int = 3, time: int = 9, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Draw actions and states whose rotation vectors are shorter than π."""
    generator = torch.Generator().manual_seed(seed)
    actions = scale * torch.randn(batch, time, 7, generator=generator)
    directions = torch.nn.functional.normalize(torch.randn(batch, time, 3, generator=generator), dim=-1)
    actions[..., 3:6] = directions * torch.rand(batch, time, 1, generator=generator) * 0.999 * math.pi
    state = torch.randn(batch, 9, generator=generator)
    return actions, state


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 100.0]))
@pytest.mark.parametrize("transform", VALUES, ids=str)
def test_the_inverse_restores_the_actions(transform: ActionTransform, seed: int, scale: float) -> None:
    actions, state = sample(seed, scale=scale)
    transform.check_values(actions, state)
    there = transform.forward(actions, state)
    assert there.shape[-1] == transform.output_dim(7, 9)
    back = transform.inverse(there, state)
    torch.testing.assert_close(back, actions, rtol=1e-5, atol=2e-6 * max(1.0, scale))


@pytest.mark.parametrize("transform", VALUES, ids=str)
def test_the_gripper_is_left_alone_and_inputs_are_not_changed(transform: ActionTransform) -> None:
    actions, state = sample(0)
    before = actions.clone(), state.clone()
    there = transform.forward(actions, state)
    if transform != Delta():
        assert torch.equal(there[..., -1], actions[..., -1])
    transform.inverse(there, state)
    assert torch.equal(actions, before[0])
    assert torch.equal(state, before[1])


@pytest.mark.parametrize("transform", VALUES, ids=str)
def test_survives_json(transform: ActionTransform) -> None:
    assert ActionTransform.from_json(json.loads(json.dumps(transform.to_json()))) == transform


def test_every_kind_is_tested() -> None:
    assert {value.kind for value in VALUES} == set(TRANSFORMS)


def test_relative_is_relative_to_the_current_state() -> None:
    actions, state = sample(0)
    there = Relative(dims=(0, 2), state_dims=(1, 8)).forward(actions, state)
    torch.testing.assert_close(there[:, :, 0], actions[:, :, 0] - state[:, 1:2])
    torch.testing.assert_close(there[:, :, 2], actions[:, :, 2] - state[:, 8:9])


def test_delta_is_step_to_step() -> None:
    actions, state = sample(0)
    kept = Delta(dims=(0,)).forward(actions)
    torch.testing.assert_close(kept[:, 1:, 0], actions[:, 1:, 0] - actions[:, :-1, 0])
    assert torch.equal(kept[:, 0], actions[:, 0])
    relative = Delta(dims=(0,), first_step="from_state").forward(actions, state)
    torch.testing.assert_close(relative[:, 0, 0], actions[:, 0, 0] - state[:, 0])


def test_long_deltas_do_not_drift() -> None:
    actions = 1000 + torch.randn(1, 5000, 1, generator=torch.Generator().manual_seed(0))
    transform = Delta()
    drift = (transform.inverse(transform.forward(actions)) - actions).abs().max()
    assert drift < 2e-3  # two steps of float32 at 1000; summing in float32 gives ten times this


def test_angles_become_continuous_as_numpy_unwraps_them() -> None:
    turning = torch.linspace(0, 20, 50)[None, :, None]
    wrapped = torch.remainder(turning + math.pi, 2 * math.pi) - math.pi
    there = UnwrapAngles().forward(wrapped)
    np.testing.assert_allclose(there[0, :, 0], np.unwrap(wrapped[0, :, 0].numpy()), rtol=1e-5)
    degrees = UnwrapAngles(period=360.0).forward(torch.tensor([[[170.0], [-175.0], [-160.0]]]))
    assert degrees.flatten().tolist() == [170, 185, 200]
    near = UnwrapAngles(first_step="near_state").forward(torch.tensor([[[3.1]]]), torch.tensor([[-3.1]]))
    assert float(near) == pytest.approx(3.1 - 2 * math.pi)


def test_six_dimensions_are_the_first_two_columns() -> None:
    actions, _ = sample(0)
    there = Rotation6D(start=3).forward(actions)
    matrix = axis_angle_to_matrix(actions[..., 3:6])
    torch.testing.assert_close(there[..., 3:9], torch.cat([matrix[..., 0], matrix[..., 1]], dim=-1))
    assert torch.equal(there[..., :3], actions[..., :3])
    torch.testing.assert_close(matrix @ matrix.mT, torch.eye(3).expand_as(matrix), atol=1e-5, rtol=0)
    quarter_turn = axis_angle_to_matrix(torch.tensor([0.0, 0.0, math.pi / 2]))
    torch.testing.assert_close(quarter_turn @ torch.tensor([1.0, 0, 0]), torch.tensor([0.0, 1, 0]), atol=1e-6, rtol=0)


@given(seed=st.integers(0, 10**6))
def test_any_six_numbers_are_a_rotation(seed: int) -> None:
    """A decoder's output need not be orthonormal."""
    matrix = sixd_to_matrix(torch.randn(20, 6, generator=torch.Generator().manual_seed(seed)))
    torch.testing.assert_close(matrix @ matrix.mT, torch.eye(3).expand_as(matrix), atol=1e-4, rtol=0)
    assert torch.linalg.det(matrix).min() > 0.999


@pytest.mark.parametrize("representation", ["quaternion_xyzw", "quaternion_wxyz"])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=25)
def test_quaternions_are_restored_up_to_their_sign(representation: Any, seed: int) -> None:
    actions = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(seed))
    actions[..., 1:5] = torch.nn.functional.normalize(actions[..., 1:5], dim=-1)
    transform = Rotation6D(start=1, representation=representation)
    assert transform.output_dim(6) == 8
    transform.check_values(actions)
    back = transform.inverse(transform.forward(actions))
    real = 4 if representation == "quaternion_xyzw" else 1
    assert (back[..., real] >= 0).all()
    sign = torch.where(actions[..., real : real + 1] < 0, -1.0, 1.0)
    torch.testing.assert_close(back[..., 1:5], sign * actions[..., 1:5], atol=1e-5, rtol=0)
    assert torch.equal(back[..., [0, 5]], actions[..., [0, 5]])


@pytest.mark.parametrize("angle", [0.0, 1e-7, 1e-3, math.pi - 1e-4, math.pi])
def test_small_and_half_turns_are_stable(angle: float) -> None:
    vectors = torch.nn.functional.normalize(torch.randn(1, 200, 3, generator=torch.Generator().manual_seed(0)), dim=-1)
    transform = Rotation6D(start=0)
    back = transform.inverse(transform.forward(vectors * angle))
    assert torch.isfinite(back).all()
    matrices = axis_angle_to_matrix(back), axis_angle_to_matrix(vectors * angle)
    torch.testing.assert_close(*matrices, atol=2e-3 if angle > 3 else 1e-5, rtol=0)


def test_quaternions_need_not_be_normalised_to_become_matrices() -> None:
    quaternion = torch.tensor([2.0, 0, 0, 0])
    torch.testing.assert_close(quaternion_to_matrix(quaternion), torch.eye(3))


@pytest.mark.parametrize(
    ("transform", "dims", "message"),
    [
        (Relative(), (7, 9), "do not correspond"),
        (Relative(), (7, None), "needs the current state"),
        (Relative(dims=(0, 7)), (7, 9), "distinct and in 0…6"),
        (Relative(dims=(0, 0)), (7, 9), "distinct"),
        (Relative(dims=(0, 1), state_dims=(0,)), (7, 9), "needs 2 state_dims"),
        (Relative(dims=(5,), state_dims=(9,)), (7, 9), "needs 1 state_dims in 0…8"),
        (Delta(first_step="from_state"), (7, 4), "do not correspond"),
        (UnwrapAngles(dims=(-1,)), (7, None), "distinct and in 0…6"),
        (Rotation6D(start=5), (7, None), "needs 3 dimensions from start=5"),
        (Rotation6D(start=4, representation="quaternion_xyzw"), (7, None), "needs 4 dimensions"),
        (Chain((Rotation6D(start=0), Relative(dims=(10,)))), (7, 12), "distinct and in 0…9"),
    ],
)
def test_undefined_cases_are_refused(transform: ActionTransform, dims: tuple[int, int | None], message: str) -> None:
    with pytest.raises(TransformError, match=message):
        transform.output_dim(*dims)


def test_values_outside_the_domain_are_refused() -> None:
    with pytest.raises(TransformError, match=r"within ±3\.14159, found 4"):
        UnwrapAngles().check_values(torch.full((1, 2, 1), 4.0))
    with pytest.raises(TransformError, match="longer than π"):
        Rotation6D(start=0).check_values(torch.full((1, 2, 3), 3.0))
    with pytest.raises(TransformError, match="length 1"):
        Rotation6D(start=0, representation="quaternion_wxyz").check_values(torch.ones(1, 2, 4))
    with pytest.raises(TransformError, match="needs the current state"):
        Relative().forward(torch.zeros(1, 2, 3))
    with pytest.raises(TransformError, match="different states"):
        _ = Chain((Relative(), Relative(state="observation.other"))).state_key


def test_options_are_checked() -> None:
    for wrong in (
        {"kind": "rotation_6d", "representation": "quat_xyzw"},
        {"kind": "delta", "first_step": "from-state"},
        {"kind": "unwrap_angles", "first_step": "from_state"},
        {"kind": "unwrap_angles", "period": 0.0},
        {"kind": "chain"},
    ):
        with pytest.raises(TransformError):
            ActionTransform.from_json(wrong)
    with pytest.raises(TransformError, match="1 action dimensions and 5 of"):
        Relative().forward(torch.zeros(2, 3, 1), torch.zeros(2, 5))


def test_unknown_configurations_are_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'relative'"):
        ActionTransform.from_json({"kind": "relativ"})
    with pytest.raises(TransformError, match="unexpected keyword"):
        ActionTransform.from_json({"kind": "delta", "dim": 3})
