"""Invertible action transforms at the border between data and model.

A transform maps a chunk of actions, given the current state, to the space in which statistics are computed and models
work, and back. It is a frozen value that is saved with every checkpoint (`to_json`, `from_json`). Dimensions that a
transform does not name, such as the gripper, pass through unchanged.
"""

import json

import torch
from torch import Tensor

from oat.data.chunks import Batch
from oat.data.transforms.chain import Chain
from oat.data.transforms.dimensions import Delta, Relative, UnwrapAngles
from oat.data.transforms.rotation import Rotation6D
from oat.data.transforms.transform import ActionTransform, Identity
from oat.errors import InvalidOption, TransformError

__all__ = [
    "TRANSFORMS",
    "ActionTransform",
    "Chain",
    "Delta",
    "Identity",
    "Relative",
    "Rotation6D",
    "UnwrapAngles",
    "parse",
    "transform_inputs",
]

# A new kind is one class and one line here: its options are the fields of its dataclass, so that the text form, the
# configuration in checkpoints and the check of the state need nothing else.
TRANSFORMS: dict[str, type[ActionTransform]] = {
    transform.kind: transform
    for transform in (
        Identity,
        Relative,
        Delta,
        UnwrapAngles,
        Rotation6D,
        Chain,
    )
}


def parse(text: str) -> ActionTransform:
    """Return the transform that a command line names: by its kind, or by JSON with its options."""
    if not text.lstrip().startswith("{"):
        return ActionTransform.from_json({"kind": text})
    try:
        return ActionTransform.from_json(json.loads(text))
    except json.JSONDecodeError as error:
        raise TransformError(f"{text!r} is neither a transform's name nor JSON ({error})") from error


def transform_inputs(
    batch: Batch, transform: ActionTransform, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return a batch's actions, which of them are valid, and the latest state if the transform refers to it."""
    key = transform.state_key
    if key is not None and key not in batch.observations:
        raise InvalidOption(f"the windows must read {key!r}, which the action transform refers to")
    state = None if key is None else torch.from_numpy(batch.observations[key][:, -1]).to(device)
    return torch.from_numpy(batch.actions).to(device), torch.from_numpy(batch.valid_mask).to(device), state
