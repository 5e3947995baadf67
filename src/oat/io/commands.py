"""Commands from configurations, for model cards and the logs of studies."""

import shlex
import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

from oat.io.flags import POSITIONAL
from oat.io.options import options_of, value_at


def command_line(verb: str, config: Any) -> str:
    """Return the command that gives this configuration, without options that have their default value.

    --resume is left out: it says how to continue a run, and is not a part of what the run makes.
    """
    return shlex.join(["oat", verb, *_words(config)])


def _words(config: Any) -> Iterator[str]:
    hints = typing.get_type_hints(type(config), include_extras=True)
    defaults = {
        field.name: field.default_factory() if field.default_factory is not MISSING else field.default
        for field in fields(config)
    }
    # Hyper-parameters have their preset's values as defaults, and not their classes'.
    usual = config.usual() if hasattr(config, "usual") else None
    for name, path in options_of(config):
        value = value_at(config, path)
        if len(path) == 1:
            default = defaults[name]
        else:
            default = value_at(defaults[path[0]] if usual is None else getattr(usual, path[0]), path[1:])
        if value is None or value == default or name == "resume":
            continue
        yield from _option(name, value, default, POSITIONAL in typing.get_args(hints[path[0]]))


def _option(name: str, value: Any, default: Any, positional: bool) -> Iterator[str]:
    flag = name.replace("_", "-")
    if positional:
        yield str(value)
    elif isinstance(default, bool):
        yield f"--{flag}" if value else f"--no-{flag}"
    else:
        yield f"--{flag}"
        yield from map(str, value if isinstance(value, tuple) else (value,))
