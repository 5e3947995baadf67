"""A policy out of a checkpoint of LeRobot's, of which nothing is built that its weights do not fill."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.constants import SAFETENSORS_SINGLE_FILE
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lerobot_policy_oat.configuration_oat import OATConfig
from oat.errors import CheckpointError
from oat.io.bounded import build_bounded, check_shapes
from oat.policies import Policy
from oat.policies.description import build_policy

_FOR_THE_HUB = ("revision", "cache_dir", "force_download", "proxies", "token", "local_files_only")


def local_folder(name_or_path: str | Path, options: Mapping[str, Any]) -> Path:
    """Return the folder of a checkpoint; one of the Hub is downloaded first."""
    if Path(name_or_path).is_dir():
        return Path(name_or_path)
    asked = {name: options[name] for name in _FOR_THE_HUB if name in options}
    return Path(hf_hub_download(repo_id=str(name_or_path), filename=SAFETENSORS_SINGLE_FILE, **asked)).parent


def restore(config: OATConfig, described: Mapping[str, Any], folder: Path) -> Policy:
    """Return the policy that a checkpoint describes, with random weights; raise `CheckpointError` if they misfit."""
    tensors = _shapes(folder / SAFETENSORS_SINGLE_FILE)
    policy = build_bounded(folder, partial(build_policy, described), tensors)
    check_shapes(folder, {f"policy.{name}": value for name, value in policy.state_dict().items()}, tensors)
    sizes = {"n_obs_steps": policy.observed.obs_horizon, "chunk_size": policy.space.action_horizon}
    for name, size in sizes.items():
        if getattr(config, name) != size:
            raise CheckpointError(f"{folder}: its policy has {name} {size}, its configuration {getattr(config, name)}")
    return policy


def _shapes(file: Path) -> dict[str, Tensor]:
    """Return tensors of a file's shapes without their numbers, which take no memory."""
    try:
        with safe_open(file, "pt") as opened:
            return {
                name: torch.empty(opened.get_slice(name).get_shape(), device="meta")
                for name in opened.keys()  # noqa: SIM118  # it is no mapping
            }
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file}: not readable ({error})") from error
