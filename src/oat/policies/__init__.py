"""Stage 3 of the pipeline: observation → chunk."""

from pathlib import Path
from typing import Any

from oat.errors import CheckpointError
from oat.io.checkpoints import CONFIG_FILE, config_from_json, find_checkpoint, load_checkpoint
from oat.io.training_record import stored_record
from oat.policies.autoregressive import TOKENIZER_FOLDER, AutoregressivePolicy
from oat.policies.context import ContextConfig
from oat.policies.decoding import Decoding, Denoising, Noise, TokenDecoding
from oat.policies.diffusion import DiffusionPolicy
from oat.policies.policy import Policy, PolicyConfig
from oat.policies.predictor import Chunk, ChunkPredictor
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.space import ActionSpace

__all__ = [
    "POLICIES",
    "AutoregressivePolicy",
    "Chunk",
    "ChunkPredictor",
    "Decoding",
    "Denoising",
    "DiffusionPolicy",
    "Noise",
    "Policy",
    "TokenDecoding",
    "load_policy",
]

POLICIES: dict[str, type[Policy]] = {policy.kind: policy for policy in (AutoregressivePolicy, DiffusionPolicy)}


def load_policy(path: str | Path) -> Policy:
    """A policy of any kind from a checkpoint, or the best one of a run."""
    folder = find_checkpoint(path)
    described, tensors = load_checkpoint(folder, POLICIES)
    try:
        policy = _build(folder, described)
    except KeyError as error:
        raise CheckpointError(f"{folder / CONFIG_FILE} lacks {error}") from error
    policy.training_record = stored_record(described)
    kept = {name: tensor for name, tensor in policy.state_dict().items() if name not in policy.own_state()}
    try:
        policy.load_state_dict({**kept, **tensors})
    except RuntimeError as error:
        raise CheckpointError(f"{folder}: its weights do not fit its configuration ({error})") from error
    return policy.eval()


def _build(folder: Path, described: dict[str, Any]) -> Policy:
    """The policy without its weights, but with its tokenizer."""
    context = config_from_json(ContextConfig, described["context"])
    config = config_from_json(PolicyConfig, described["config"])
    if described["kind"] == AutoregressivePolicy.kind:
        return AutoregressivePolicy(context, load_tokenizer(folder / TOKENIZER_FOLDER), config, described["longest"])
    return DiffusionPolicy(context, config_from_json(ActionSpace, described["space"]), config)
