"""A policy as JSON values and weights, for programs that keep both in files of their own, as LeRobot does."""

import json
from collections.abc import Mapping
from typing import Any

from oat.errors import CheckpointError
from oat.io.config_json import config_from_json
from oat.io.training_record import stored_record
from oat.policies import POLICIES
from oat.policies.autoregressive import TOKENIZER_FOLDER
from oat.policies.context import ContextConfig
from oat.policies.policy import Policy


def describe_policy(policy: Policy) -> dict[str, Any]:
    """Return all that makes the policy but its weights, its tokenizer included, as JSON values."""
    described = {"kind": policy.kind, **policy.describe()}
    if policy.teacher is not None:
        described[TOKENIZER_FOLDER] = {"kind": policy.teacher.kind, **policy.teacher.describe()}
    values: dict[str, Any] = json.loads(json.dumps(described))  # tuples become lists, as they will in a file
    return values


def build_policy(described: Mapping[str, Any]) -> Policy:
    """Return the policy that was described, with random weights; its `state_dict` takes the real ones."""
    try:
        kind = POLICIES.find(described["kind"])
        context = config_from_json(ContextConfig, described["context"])
        config = config_from_json(kind.config_class, described["config"])
        policy = kind.restoring(None, described, context, config)()
    except KeyError as error:
        raise CheckpointError(f"the description of a policy lacks {error}") from error
    policy.training_record = stored_record(dict(described))
    return policy
