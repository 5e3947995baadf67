"""Loading a policy whose kind is not known beforehand."""

from pathlib import Path

from oat.errors import CheckpointError
from oat.io.bounded import build_bounded, check_shapes
from oat.io.checkpoints import CONFIG_FILE, find_checkpoint, load_checkpoint
from oat.io.config_json import config_from_json
from oat.io.training_record import stored_record
from oat.policies import POLICIES
from oat.policies.context import ContextConfig
from oat.policies.policy import Policy


def load_policy(path: str | Path) -> Policy:
    """Return the policy of a checkpoint of any kind, or of the best one of a run."""
    folder = find_checkpoint(path)
    described, tensors = load_checkpoint(folder, POLICIES)
    kind = POLICIES[described["kind"]]
    try:
        context = config_from_json(ContextConfig, described["context"])
        config = config_from_json(kind.config_class, described["config"])
        policy = build_bounded(folder, kind.restoring(folder, described, context, config), tensors)
    except KeyError as error:
        raise CheckpointError(f"{folder / CONFIG_FILE} lacks {error}") from error
    policy.training_record = stored_record(described)
    check_shapes(folder, policy.own_state(), tensors)
    # What a checkpoint leaves out of its own weights, such as a tokenizer, was loaded with it.
    policy.load_state_dict({**policy.state_dict(), **tensors})
    return policy.eval()
