"""Checkpoints: a directory with config.json, model.safetensors and a card, complete or absent, that moves anywhere.

No pickle. config.json holds the SHA-256 of the weights, so that a damaged or exchanged file is noticed. The card is for
people: nothing depends on it.
"""

import dataclasses
import hashlib
import json
import typing
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from oat.errors import CheckpointError, OatError
from oat.io.added_fields import is_stored
from oat.io.atomic import staged_directory
from oat.io.model_cards import ModelCard

FORMAT = "oat"
VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "README.md"
BEST = "best"
"""The folder of a run that holds its best checkpoint."""
LAST = "last"
"""The folder of a run that holds its latest checkpoint, from which it resumes."""
LOG_FILE = "metrics.jsonl"
"""The file of a run that holds what it logged, a line of JSON each time."""

Config = TypeVar("Config")


@runtime_checkable
class KnowsItsJson(Protocol):
    """Describe a value that is stored in its own way, such as an action transform, whose class its JSON must name."""

    def to_json(self) -> Any:
        """Return the value as config.json holds it."""
        ...

    @classmethod
    def from_json(cls, values: Any) -> Any:
        """Return the value that `to_json` described, which may be of a subclass."""
        ...


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
    (directory / CONFIG_FILE).write_text(json.dumps(described, indent=2, ensure_ascii=False), "utf-8")
    (directory / CARD_FILE).write_text(card.render(described["weights_sha256"]), "utf-8")


def find_checkpoint(path: str | Path) -> Path:
    """Return the path of the checkpoint there, or of the best one if it is a run."""
    path = Path(path).expanduser()
    return path if (path / CONFIG_FILE).exists() or not (path / BEST).exists() else path / BEST


def fingerprint(directory: Path) -> str:
    """Return a hash that tells checkpoints apart: of all configurations inside, which hold the hashes of weights."""
    files = sorted(directory.rglob(CONFIG_FILE), key=lambda file: file.relative_to(directory).as_posix())
    return _hash(b"".join(file.read_bytes() for file in files))[:12]


def load_checkpoint(directory: Path, kinds: Collection[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the configuration and the tensors; raise `CheckpointError`, which says what is there instead."""
    try:
        config = json.loads((directory / CONFIG_FILE).read_text("utf-8"))
        weights = (directory / WEIGHTS_FILE).read_bytes()
        kind = config["kind"]
        version = config["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{directory} is not a readable checkpoint ({type(error).__name__}: {error})") from error
    if version != VERSION:
        raise CheckpointError(f"{directory} is a checkpoint of version {version}, this oat reads version {VERSION}")
    if kind not in kinds:
        raise CheckpointError(f"{directory} holds {kind!r}, expected {' or '.join(sorted(kinds))}")
    if _hash(weights) != config.get("weights_sha256"):
        raise CheckpointError(f"{directory / WEIGHTS_FILE} is damaged: its contents are not those that were saved")
    try:
        return config, load_tensors(weights)
    except SafetensorError as error:
        raise CheckpointError(f"{directory / WEIGHTS_FILE} is unreadable ({error})") from error


def config_to_json(config: Any) -> Any:
    """Return a frozen dataclass, with dataclasses and values that know their own JSON inside, as JSON-able values."""
    if isinstance(config, KnowsItsJson):
        return config.to_json()
    if dataclasses.is_dataclass(config):
        values = ((each, getattr(config, each.name)) for each in dataclasses.fields(config))
        return {each.name: config_to_json(value) for each, value in values if is_stored(each, value)}
    if isinstance(config, tuple | list):
        return [config_to_json(value) for value in config]
    return config


def config_from_json(kind: type[Config], values: dict[str, Any]) -> Config:
    """Return the dataclass that `config_to_json` described; raise `CheckpointError` for values that do not fit it."""
    hints = typing.get_type_hints(kind)
    try:
        return kind(**{name: _value(hints[name], value) for name, value in values.items()})
    except (KeyError, TypeError, ValueError, OatError) as error:
        raise CheckpointError(f"this configuration does not fit {kind.__name__}: {error}") from error


def _value(hint: Any, value: Any) -> Any:
    """Return a JSON value as the type that the field is annotated with; JSON has lists where fields have tuples."""
    if isinstance(hint, type) and issubclass(hint, KnowsItsJson):
        return hint.from_json(value)
    if isinstance(value, dict):  # perhaps an optional dataclass
        hint = next((kind for kind in typing.get_args(hint) if dataclasses.is_dataclass(kind)), hint)
    if dataclasses.is_dataclass(hint):
        return config_from_json(typing.cast(type, hint), value)
    if not isinstance(value, list):
        return value
    inner = typing.get_args(hint) if typing.get_origin(hint) is tuple else ()
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(_value(inner[0], item) for item in value)
    return tuple(value)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
