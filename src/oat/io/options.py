"""Options of nested configurations: read and change a value by its name on the command line, wherever it is inside."""

import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from oat.io.flags import HIDDEN

Config = TypeVar("Config")


def options_of(config: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every option of a configuration, a value or a class, and the path of fields that leads to it."""
    hints = typing.get_type_hints(config if isinstance(config, type) else type(config), include_extras=True)
    for each in fields(config):
        hint = hints[each.name]
        extras = getattr(hint, "__metadata__", ())
        if any(extra is HIDDEN for extra in extras):
            continue  # it follows from other fields, so that nobody may set it
        kind = typing.get_args(hint)[0] if extras else hint
        # Of a value, the class inside may be a subclass of the annotated one, with options of its own.
        inner = kind if isinstance(config, type) else getattr(config, each.name)
        if is_dataclass(inner):
            yield from ((name, (each.name, *path)) for name, path in options_of(inner))
        else:
            yield next((extra.name for extra in extras if getattr(extra, "name", "")), each.name), (each.name,)


def value_at(config: Any, path: tuple[str, ...]) -> Any:
    """Return the value at the end of a path of fields."""
    for name in path:
        config = getattr(config, name)
    return config


def change(config: Config, changes: Mapping[str, Any]) -> tuple[Config, dict[str, Any]]:
    """Return the configuration with those options changed that it has, and the changes that are left."""
    if config is None:
        return config, dict(changes)
    places = dict(options_of(config))
    for name, value in changes.items():
        if name in places:
            config = _replaced(config, places[name], value)
    return config, {name: value for name, value in changes.items() if name not in places}


def _replaced(config: Any, path: tuple[str, ...], value: Any) -> Any:
    """Return the configuration with the value at the end of a path of fields replaced."""
    first, *rest = path
    inner = _replaced(getattr(config, first), tuple(rest), value) if rest else value
    return replace(config, **{first: inner})
