"""Checkpoints: a directory with config.json, model.safetensors and a card, complete or absent, that moves anywhere.

No pickle. config.json holds the SHA-256 of the weights and of itself, so that a damaged or exchanged file is noticed.
The card is for people: nothing depends on it.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from oat.errors import CheckpointError
from oat.io.atomic import staged_directory
from oat.io.model_cards import ModelCard

FORMAT = "oat"
VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "README.md"
_OWN_DIGEST = "config_sha256"
BEST = "best"
"""The folder of a run that holds its best checkpoint."""
LAST = "last"
"""The folder of a run that holds its latest checkpoint, from which it resumes."""
LOG_FILE = "metrics.jsonl"
"""The file of a run that holds what it logged, a line of JSON each time."""


@contextmanager
def staged_checkpoint(directory: Path, kind: str) -> Iterator[Path]:
    """Yield a directory to fill, which then replaces an earlier checkpoint of this kind; refuse to replace others."""
    free = not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))
    found = checkpoint_kind(directory)
    if not free and found != kind:
        what = "is not a checkpoint" if found is None else f"holds {found!r}"
        raise CheckpointError(f"{directory} exists and {what}; it is not overwritten by {kind!r}")
    with staged_directory(directory) as staging:
        yield staging


def checkpoint_kind(directory: Path) -> str | None:
    """Return the kind of checkpoint in a directory; None if it is not one of ours."""
    try:
        config = json.loads((directory / CONFIG_FILE).read_text("utf-8"))
        # Language models and others have a config.json, too.
        return str(config["kind"]) if config["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_checkpoint(
    directory: Path, kind: str, config: dict[str, Any], tensors: dict[str, Tensor], card: ModelCard
) -> None:
    """Write configuration, weights and card into an existing directory."""
    weights = save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    described = {"format": FORMAT, "version": VERSION, "kind": kind, "weights_sha256": _hash(weights), **config}
    (directory / WEIGHTS_FILE).write_bytes(weights)
    write_config(directory, described)
    (directory / CARD_FILE).write_text(card.render(described["weights_sha256"]), "utf-8")


def find_checkpoint(path: str | Path) -> Path:
    """Return the path of the checkpoint there, or of the best one if it is a run."""
    path = Path(path).expanduser()
    return path if (path / CONFIG_FILE).exists() or not (path / BEST).exists() else path / BEST


def fingerprint(directory: Path) -> str:
    """Return a hash that tells checkpoints apart: of all configurations inside, which hold the hashes of weights."""
    files = sorted(directory.rglob(CONFIG_FILE), key=lambda file: file.relative_to(directory).as_posix())
    return _hash(b"".join(file.read_bytes() for file in files))[:12]


def weights_hash(path: Path) -> str | None:
    """Return a hash of the weights of the checkpoint there, or of the best one of a run; None where there is none."""
    directory = find_checkpoint(path)
    return None if checkpoint_kind(directory) is None else str(read_config(directory)["weights_sha256"])[:12]


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of tensors and their names, whatever device they are on."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def load_checkpoint(directory: Path, kinds: Collection[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the configuration and the tensors; raise `CheckpointError`, which says what is there instead."""
    config = read_config(directory)
    kind = config["kind"]
    if kind not in kinds:
        raise CheckpointError(f"{directory} holds {kind!r}, expected {' or '.join(sorted(kinds))}")
    try:
        weights = (directory / WEIGHTS_FILE).read_bytes()
    except OSError as error:
        raise _unreadable(directory, error) from error
    if _hash(weights) != config.get("weights_sha256"):
        raise CheckpointError(f"{directory / WEIGHTS_FILE} is damaged: its contents are not those that were saved")
    try:
        return config, load_tensors(weights)
    except (SafetensorError, ValueError, KeyError) as error:  # ValueError and KeyError: types that torch has not
        raise CheckpointError(f"{directory / WEIGHTS_FILE} is unreadable ({error})") from error


def read_config(directory: Path) -> dict[str, Any]:
    """Return what config.json holds, which is of this version and as it was written; else raise `CheckpointError`."""
    try:
        config = json.loads((directory / CONFIG_FILE).read_text("utf-8"))
        version = config["version"]
        if not isinstance(config["kind"], str):
            raise TypeError(f"kind must be a string, got {config['kind']!r:.60}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(directory, error) from error
    if version != VERSION:
        raise CheckpointError(f"{directory} is a checkpoint of version {version}, this oat reads version {VERSION}")
    # Checkpoints of before have none.
    if config.get(_OWN_DIGEST, digest := config_digest(config)) != digest:
        raise CheckpointError(f"{directory / CONFIG_FILE} is damaged: its contents are not those that were saved")
    return config


def write_config(directory: Path, config: Mapping[str, Any]) -> None:
    """Write config.json with its own digest."""
    described = {**config, _OWN_DIGEST: config_digest(config)}
    (directory / CONFIG_FILE).write_text(json.dumps(described, indent=2, ensure_ascii=False), "utf-8")


def config_digest(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what config.json holds, its own digest left out, whatever its layout is."""
    held = {name: value for name, value in config.items() if name != _OWN_DIGEST}
    return _hash(json.dumps(held, sort_keys=True).encode())


def _unreadable(directory: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{directory} is not a readable checkpoint ({type(error).__name__}: {error})")


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
