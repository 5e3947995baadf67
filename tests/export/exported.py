"""Exports of small policies for tests, each made once per run."""

from functools import cache
from pathlib import Path

from oat.export.export import export_policy
from oat.io.training_record import TrainingRecord
from oat.policies import Policy
from tests.policies.small import policy_of
from tests.shared import made_once


@cache
def exported(kind: str) -> tuple[Policy, Path]:
    """A policy of the kind, and the directory of its export; the policy's checkpoint lies beside it."""
    policy = policy_of(kind)
    policy.training_record = TrainingRecord(seed=4)

    def make(folder: Path) -> None:
        policy.save(folder / "policy")
        export_policy(folder / "policy", folder / "export")

    return policy, made_once(f"{kind}-policy", make) / "export"
