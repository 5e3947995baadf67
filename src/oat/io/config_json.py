"""Configurations as JSON and back: frozen dataclasses, whose annotations say what a file may hold."""

import dataclasses
import math
import types
import typing
from typing import Any, Protocol, TypeVar, runtime_checkable

from oat.errors import CheckpointError, OatError
from oat.io.added_fields import is_stored

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


def config_from_json(kind: type[Config], values: Any) -> Config:
    """Return the dataclass that `config_to_json` described; raise `CheckpointError` for values that do not fit it."""
    hints = typing.get_type_hints(kind)
    name = None
    try:
        found = {}
        for name, value in _object(values).items():
            found[name] = _value(hints[name], value)
        name = None
        return kind(**found)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OatError) as error:
        where = "" if name is None else f"{name}: "
        raise CheckpointError(f"this configuration does not fit {kind.__name__}: {where}{error}") from error


def _value(hint: Any, value: Any) -> Any:
    """Return a JSON value as the type that the field is annotated with, or raise `TypeError`."""
    if isinstance(hint, type) and issubclass(hint, KnowsItsJson):
        return hint.from_json(_object(value))
    if dataclasses.is_dataclass(hint):
        return config_from_json(typing.cast(type, hint), value)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _one_of(typing.get_args(hint), value)
    if origin is tuple:
        return _tuple(typing.get_args(hint), value)
    if origin is typing.Literal:
        if value not in typing.get_args(hint) or isinstance(value, bool):
            raise TypeError(f"must be one of {', '.join(map(repr, typing.get_args(hint)))}, got {value!r:.60}")
        return value
    return _object(value) if origin is dict else _plain(hint, value)


def _one_of(hints: tuple[Any, ...], value: Any) -> Any:
    """Return a value as the optional type's, which is the only union that configurations have."""
    if value is None and type(None) in hints:
        return None
    return _value(next(hint for hint in hints if hint is not type(None)), value)


def _tuple(hints: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """Return a list as a tuple, of any length or of a fixed one; JSON has no tuples."""
    if not isinstance(value, list):
        raise TypeError(f"must be a list, got {value!r:.60}")
    if len(hints) == 2 and hints[1] is Ellipsis:
        return tuple(_value(hints[0], item) for item in value)
    if len(hints) != len(value):
        raise TypeError(f"must be a list of {len(hints)}, got {value!r:.60}")
    return tuple(_value(hint, item) for hint, item in zip(hints, value, strict=True))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"must be an object, got {value!r:.60}")
    return value


def _plain(hint: Any, value: Any) -> Any:
    """Return a string, truth value or number; whole numbers also stand for others, as they do in Python."""
    if hint is Any:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    # In Python a bool is an int, but no size is a truth value.
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise TypeError(f"must be {hint.__name__}, got {value!r:.60}")
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"must be finite, got {value}")
    return value
