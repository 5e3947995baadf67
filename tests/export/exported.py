"""Exports of small policies for tests, each made once per process."""

import tempfile
from functools import cache
from pathlib import Path

from oat.export.export import export_policy
from oat.io.training_record import TrainingRecord
from oat.policies import Policy
from tests.policies.small import policy_of


@cache
def exported(kind: str) -> tuple[Policy, Path]:
    """A policy of the kind, and the directory of its export."""
    policy, folder = policy_of(kind), Path(tempfile.mkdtemp(prefix=f"oat-{kind}-"))
    policy.training_record = TrainingRecord(seed=4)
    policy.save(folder / "policy")
    export_policy(folder / "policy", folder / "export")
    return policy, folder / "export"
