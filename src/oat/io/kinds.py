"""Registries of kinds: mappings from names to classes, which import a class when it is first looked up.

Our own kinds need torch, which takes seconds to import; a command's help needs only their names and configurations.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from oat.errors import unknown_name

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Later:
    """Name a class that is imported when it is first needed, and its configuration, which costs nothing to import."""

    module: str
    name: str
    config: type[Any]

    def load(self) -> Any:
        """Import the module and return the class."""
        return getattr(import_module(self.module), self.name)


class Kinds(MutableMapping[str, type[Kind]]):
    """Map names to classes, each of which has its configuration as `config_class`; assigning registers one more."""

    def __init__(self, sort: str, known: Mapping[str, Later]) -> None:
        """Take the sort of thing, as errors should call it, and the kinds that are known from the beginning."""
        self.sort = sort
        self._known: dict[str, type[Kind] | Later] = dict(known)

    def __getitem__(self, kind: str) -> type[Kind]:
        found = self._known[kind]
        return found.load() if isinstance(found, Later) else found

    def __setitem__(self, kind: str, value: type[Kind]) -> None:
        self._known[kind] = value

    def __delitem__(self, kind: str) -> None:
        del self._known[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, kind: object) -> bool:
        return kind in self._known  # MutableMapping's own would import the class

    def find(self, kind: str) -> type[Kind]:
        """Return the class by that name, or raise `UnknownName` with the names that there are."""
        self.check(kind)
        return self[kind]

    def check(self, kind: str) -> None:
        """Raise `UnknownName` for a kind that is not registered."""
        if kind not in self._known:
            raise unknown_name(self.sort, kind, self._known)

    def config(self, kind: str) -> Any:
        """Return the configuration class of a kind without importing the kind itself."""
        self.check(kind)
        found = self._known[kind]
        return found.config if isinstance(found, Later) else found.config_class  # type: ignore[attr-defined]
