"""Loading a policy whose kind is not known beforehand."""

from pathlib import Path

from oat.errors import CheckpointError
from oat.io.checkpoints import CONFIG_FILE, config_from_json, find_checkpoint, load_checkpoint
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
        policy = kind.restore(folder, described, context, config_from_json(kind.config_class, described["config"]))
    except KeyError as error:
        raise CheckpointError(f"{folder / CONFIG_FILE} lacks {error}") from error
    policy.training_record = stored_record(described)
    # What a checkpoint leaves out of its own weights, such as a tokenizer, was loaded with it.
    kept = {name: tensor for name, tensor in policy.state_dict().items() if name not in policy.own_state()}
    try:
        policy.load_state_dict({**kept, **tensors})
    except RuntimeError as error:
        raise CheckpointError(f"{folder}: its weights do not fit its configuration ({error})") from error
    return policy.eval()
