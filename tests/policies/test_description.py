"""A policy can be rebuilt from JSON values and its weights alone, and be laid out as other libraries expect."""

import json

import pytest
import torch

from oat.errors import CheckpointError
from oat.io.training_record import TrainingRecord
from oat.nn.transformer import lay_out_by_rows
from oat.policies.description import build_policy, describe_policy
from oat.policies.sampling import Noise
from tests.policies.small import observe, policy_of


@pytest.mark.parametrize("kind", ["oat", "quest", "bin", "fast", "diffusion", "regression"])
def test_description_and_weights_are_the_whole_policy(kind: str) -> None:
    policy = policy_of(kind)
    rebuilt = build_policy(json.loads(json.dumps(describe_policy(policy))))
    rebuilt.load_state_dict(policy.state_dict())
    noise = Noise.of([1, 2], [0, 0])
    expected = policy.predict_chunk(observe(2), noise=noise)
    found = rebuilt.eval().predict_chunk(observe(2), noise=noise)
    torch.testing.assert_close(found.actions, expected.actions, equal_nan=True)
    assert rebuilt.training_record == policy.training_record


def test_what_is_known_of_the_training_is_kept() -> None:
    policy = policy_of("oat")
    assert policy.teacher is not None
    policy.training_record = TrainingRecord(data="demos", seed=3)
    policy.teacher.training_record = TrainingRecord(data="chunks", step=10)
    assert describe_policy(build_policy(describe_policy(policy))) == describe_policy(policy)


def test_a_description_that_lacks_something_is_refused() -> None:
    described = describe_policy(policy_of("oat"))
    del described["tokenizer"]["space"]
    with pytest.raises(CheckpointError, match="lacks 'space'"):
        build_policy(described)


def test_parameters_laid_out_by_rows_compute_the_same() -> None:
    policy = policy_of("oat")
    noise = Noise.of([1, 2], [0, 0])
    before = policy.predict_chunk(observe(2), noise=noise).actions
    assert not all(parameter.is_contiguous() for parameter in policy.parameters())
    lay_out_by_rows(policy)
    assert all(parameter.is_contiguous() for parameter in policy.parameters())
    torch.testing.assert_close(policy.predict_chunk(observe(2), noise=noise).actions, before)
