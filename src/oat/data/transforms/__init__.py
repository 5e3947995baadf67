"""Invertible action transforms at the border between data and model.

A transform maps a chunk of actions, given the current state, to the space in which statistics are computed and models
work, and back. It is a frozen value that is saved with every checkpoint (`to_config`, `from_config`). Dimensions that a
transform does not name, such as the gripper, pass through unchanged.
"""

import json
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from oat.data.chunks import Batch
from oat.data.transforms.chain import Chain
from oat.data.transforms.dimensions import Delta, Relative, UnwrapAngles
from oat.data.transforms.rotation import Rotation6D
from oat.data.transforms.transform import ActionTransform, Identity
from oat.errors import InvalidOption, TransformError, unknown_name

__all__ = [
    "TRANSFORMS",
    "ActionTransform",
    "Chain",
    "Delta",
    "Identity",
    "Relative",
    "Rotation6D",
    "UnwrapAngles",
    "from_config",
    "parse",
    "to_config",
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


def to_config(transform: ActionTransform) -> dict[str, Any]:
    """Return the transform's kind and options as values that JSON can hold."""
    options = {field.name: getattr(transform, field.name) for field in fields(transform)}  # type: ignore[arg-type]
    return {"kind": transform.kind} | {name: _to_json(value) for name, value in options.items()}


def from_config(config: dict[str, Any]) -> ActionTransform:
    """Return the transform that `to_config` described; options that are left out have their defaults."""
    options = {name: _from_json(value) for name, value in config.items() if name != "kind"}
    kind = config.get("kind", "")
    if kind not in TRANSFORMS:
        raise unknown_name("action transform", kind, TRANSFORMS)
    try:
        return TRANSFORMS[kind](**options)
    except TypeError as error:
        raise TransformError(f"{kind}: {error}") from error


def parse(text: str) -> ActionTransform:
    """Return the transform that a command line names: by its kind, or by JSON with its options."""
    if not text.lstrip().startswith("{"):
        return from_config({"kind": text})
    try:
        return from_config(json.loads(text))
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


def _to_json(value: Any) -> Any:
    """Return an option's value for JSON; transforms may lie inside transforms, as in a chain."""
    if isinstance(value, ActionTransform):
        return to_config(value)
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def _from_json(value: Any) -> Any:
    """Return an option's value from JSON, whose lists become tuples because transforms are hashable values."""
    if isinstance(value, dict) and "kind" in value:
        return from_config(value)
    return tuple(_from_json(item) for item in value) if isinstance(value, list) else value
