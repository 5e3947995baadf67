"""Gather the part of this library that a class needs into one file.

A processor on the Hugging Face Hub brings its own Python file, for people who have not installed `oat`. Ours is made of
the library's source whenever a processor is saved: the class, every definition that it refers to, theirs in turn, word
for word, each module after those that it imports. So there is no second implementation, and the two cannot differ.
"""

import ast
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from importlib.abc import InspectLoader
from importlib.util import find_spec

_PACKAGE = "oat."
_PROCESSOR = ("oat.huggingface.processor", "OATProcessor")
_REPLACED = dict.fromkeys(
    ("jaxtyping", "oat.huggingface.standalone", "oat.io.flags", "oat.io.progress"), "oat.huggingface.replacements"
)
"""Modules that the file leaves behind, and where their names are found instead."""
_HEADER = '''"""OAT, ordered action tokenization, as a Hugging Face processor: all of it in one file.

Made from the source of the `oat` package (Apache-2.0), which is the place to read and to change it. Beside transformers
it needs torch, numpy and safetensors.
"""
'''

Imports = dict[str, tuple[str, str | None]]
"""Module and name there of each imported name; None if the name is the module itself."""


@cache
def processor_source() -> str:
    """Return the Python file that a saved processor brings along."""
    return gather(*_PROCESSOR)


def gather(module: str, name: str) -> str:
    """Return the definition of `name` in `module` with all it needs, as the text of one file."""
    found = _Gathering()
    found.add(module, name)
    parts = [_HEADER, _import_lines(found.imports)]
    seen = set[str]()
    for each in found.order.static_order():
        # A definition that two modules share word for word, such as a type variable, is written once.
        texts = [text for _, text in sorted(found.chosen.get(each, {}).items()) if text not in seen]
        seen.update(texts)
        parts += [f"\n# --- {each} ---\n", *(f"\n{text}\n" for text in texts)] if texts else []
    return "\n".join(parts)


def _import_lines(imports: Imports) -> str:
    modules = list[str]()
    names = dict[str, list[str]]()
    for local, (module, original) in sorted(imports.items()):
        target = original or module
        renamed = target if local == target else f"{target} as {local}"
        (modules if original is None else names.setdefault(module, [])).append(renamed)
    lines = [f"from {module} import {', '.join(chosen)}" for module, chosen in sorted(names.items())]
    return "\n".join([*(f"import {module}" for module in sorted(modules)), *lines, ""])


@dataclass(frozen=True)
class _Module:
    """Hold the statements at a module's top level: what each defines, and what is imported."""

    lines: list[str]
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    """The statement that gives each name its meaning."""
    imports: Imports = field(default_factory=dict)

    def text(self, statement: ast.stmt) -> str:
        """Return a statement's lines, without imports from this package inside it."""
        decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
        last = statement.end_lineno or statement.lineno
        left_out = {
            number
            for late in _late_imports(statement)
            for number in range(late.lineno, (late.end_lineno or late.lineno) + 1)
        }
        return "\n".join(self.lines[number - 1] for number in range(first, last + 1) if number not in left_out)


@cache
def _read(name: str) -> _Module:
    """Return a module's statements, read from its source without importing it."""
    spec = find_spec(name)
    loader = None if spec is None else spec.loader
    assert isinstance(loader, InspectLoader), f"no source of {name}"
    source = loader.get_source(name) or ""
    module = _Module(source.splitlines())
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ImportFrom):
            origin = str(statement.module)
            module.imports.update({alias.asname or alias.name: (origin, alias.name) for alias in statement.names})
        elif isinstance(statement, ast.Import):
            module.imports.update({alias.asname or alias.name: (alias.name, None) for alias in statement.names})
        else:
            module.definitions.update(dict.fromkeys(_bound(statement), statement))
    return module


def _late_imports(statement: ast.stmt) -> list[ast.ImportFrom]:
    """Return the imports from this package inside a definition."""
    nodes = [node for node in ast.walk(statement) if isinstance(node, ast.ImportFrom)]
    return [node for node in nodes if str(node.module).startswith(_PACKAGE)]


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", ast.Pass())]
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


class _Gathering:
    """Collect the definitions and imports that a class needs, starting from its own."""

    def __init__(self) -> None:
        self.order = TopologicalSorter[str]()
        self.chosen: dict[str, dict[int, str]] = {}
        """Texts of the statements that are needed, by module and line."""
        self.imports: Imports = {}
        """Imports from other packages that the file begins with."""
        self._texts: dict[str, str] = {}

    def add(self, module: str, name: str) -> None:
        """Add the definition or import of a name, and all that it refers to; builtins and local variables have none."""
        source = _read(module)
        if name in source.definitions:
            self._define(module, source.definitions[name])
        elif name in source.imports:
            self._import(module, name, *source.imports[name])

    def _import(self, module: str, name: str, origin: str, original: str | None) -> None:
        origin = _REPLACED.get(origin, origin)
        if not origin.startswith(_PACKAGE):
            known = self.imports.setdefault(name, (origin, original))
            # One file has one namespace: two meanings of a name would silently replace each other.
            assert known == (origin, original), f"{name} is from {origin} in {module}, but from {known[0]} elsewhere"
            return
        assert original == name, f"{module} must import {original} from {origin} under its own name"
        assert name in {**_read(origin).definitions, **_read(origin).imports}, f"{origin} has no {name}"
        self.order.add(module, origin)
        self.add(origin, name)

    def _define(self, module: str, statement: ast.stmt) -> None:
        self.order.add(module)
        text = _read(module).text(statement)
        chosen = self.chosen.setdefault(module, {})
        if statement.lineno in chosen:
            return  # definitions may refer to each other in circles
        chosen[statement.lineno] = text
        for name in _bound(statement):
            assert self._texts.setdefault(name, text) == text, f"{name} of {module} is something else elsewhere, too"
        for name in sorted({node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}):
            self.add(module, name)
        # In one file all names are there when a function is called, so that a late import needs no order of modules.
        for late in _late_imports(statement):
            for alias in late.names:
                self.add(str(late.module), alias.name)
