"""No text tells anybody to install what is not ours or not meant: every name after `pip install` is declared."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from oat.io.extras import DISTRIBUTION
from tests.texts import PAGES, RESULTS, ROOT, name_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
SOURCES = [path for folder in ("src", "examples", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
OTHERS = [ROOT / "Makefile", ROOT / "CHANGELOG.md", ROOT / "pyproject.toml", *sorted((ROOT / "scripts").glob("*.*"))]
_COMMAND = re.compile(r"pip\d? install((?:[ \t]+(?:\"[^\"\n]+\"|'[^'\n]+'|[^\s`\"';&|,#]+))+)")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z][\w.-]*?)(?:\[(?P<extras>[\w,\-\s]+)\])?(?:[=<>~!]=?[^\s]*)?")
_WITH_A_VALUE = {"-c", "-r", "--target", "--python"}


def normal(name: str) -> str:
    """Return a distribution's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    """Return every distribution that pyproject.toml or constraints.txt names, and our own."""
    requirements = [
        *PROJECT["dependencies"],
        *(each for extra in PROJECT["optional-dependencies"].values() for each in extra),
    ]
    requirements += [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    names = {re.match(r"[\w.-]+", each)[0] for each in requirements if each}  # type: ignore[index]
    ours = (tomllib.loads(file.read_text())["project"]["name"] for file in ROOT.glob("integrations/*/pyproject.toml"))
    return {normal(name) for name in [*names, PROJECT["name"], *ours]}


def installed_by(text: str) -> Iterator[str]:
    """Yield what the `pip install` commands of a text install."""
    for arguments in _COMMAND.findall(text):
        words = iter(shlex.split(arguments))
        for word in words:
            if word in _WITH_A_VALUE:
                next(words)
            elif word == "-e":
                yield "-e " + next(words)
            elif not word.startswith("-"):
                yield word


def problem_with(requirement: str, text: str) -> str | None:
    """Return why a requirement must not be recommended, or None."""
    if requirement.startswith("-e "):
        path = requirement.removeprefix("-e ")
        if (ROOT / path / "pyproject.toml").exists() and path != ".":
            return None  # a distribution of this repository
        if path.startswith("."):
            return problem_with(DISTRIBUTION + path[1:], text)
        return None if re.search(rf"git clone \S*/{path}\b", text) else f"{path} is not cloned before it is installed"
    found = _REQUIREMENT.fullmatch(requirement)
    if found is None:
        return f"{requirement!r} is not a requirement"
    if normal(found["name"]) not in declared():
        return f"{found['name']} is not declared"
    extras = {each.strip() for each in (found["extras"] or "").split(",") if each.strip()}
    if normal(found["name"]) == DISTRIBUTION and not extras <= EXTRAS:
        return f"there are no extras {sorted(extras - EXTRAS)}"
    return None


def source_text(path: Path) -> str:
    """Return all strings of a module, with the distribution's name filled into formatted ones."""
    parts = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts.append("".join(_value(each) for each in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts.append(node.value)
    return "\n".join(parts)


def _value(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    name = node.value.id if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name) else ""
    return {"DISTRIBUTION": DISTRIBUTION, "extra": "report"}.get(name, "")


def expanded(text: str) -> str:
    """Return a Makefile's text with its variables filled in; other texts have none."""
    values = dict(re.findall(r"^(\w+) :=[ \t]*([^#\n]*)", text, re.MULTILINE))
    return re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]).strip(), text)


@pytest.mark.parametrize("path", [*PAGES, *RESULTS, *OTHERS], ids=name_of)
def test_texts_install_what_is_declared(path: Path) -> None:
    text = expanded(path.read_text())
    assert [problem for each in installed_by(text) if (problem := problem_with(each, text))] == []


def test_messages_install_what_is_declared() -> None:
    texts = {path: source_text(path) for path in SOURCES}
    assert sum("pip install" in text for text in texts.values()) >= 3
    for path, text in texts.items():
        assert [problem for each in installed_by(text) if (problem := problem_with(each, text))] == [], path


def extras_in(path: Path) -> Iterator[str]:
    """Yield the extras that a module's calls of `import_extra` tell people to install."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "import_extra":
            given = [*node.args[1:], *(each.value for each in node.keywords if each.arg == "extra")]
            yield from (each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str))


def test_extras_in_code_are_declared() -> None:
    named = {extra: path for path in SOURCES for extra in extras_in(path)}
    assert len(named) >= 8
    assert set(named) <= EXTRAS, named


def test_the_check_finds_what_is_wrong() -> None:
    for text in (
        "pip install oat",
        'pip install "oat[libero]"',
        f"pip install '{DISTRIBUTION}[liberal]'",
        "pip install -e robocasa",
    ):
        assert [problem_with(each, text) for each in installed_by(text)] != [None], text
    for text in (
        f'pip install "{DISTRIBUTION}[libero,hf]"',
        'pip install -e ".[formats]"',
        "pip install --no-deps praxis-libero==0.1.1.post1",
    ):
        assert [problem_with(each, text) for each in installed_by(text)] == [None], text


def test_our_name() -> None:
    assert PROJECT["name"] == DISTRIBUTION == "ordered-action-tokenization"
    assert PROJECT["scripts"] == {"oat": "oat.cli:main"}


def test_the_installation_is_pinned() -> None:
    """The Makefile's installation has every extra, and installs without dependencies only what is pinned."""
    makefile = (ROOT / "Makefile").read_text()
    extras = re.search(r"^EXTRAS := (\S+)", makefile, re.MULTILINE)
    assert extras is not None
    assert EXTRAS - set(extras[1].split(",")) <= {"robosuite"}  # which comes with libero
    pinned = {line.split()[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if line}
    without = re.search(r"^WITHOUT_DEPENDENCIES := ([^#\n]+)", makefile, re.MULTILINE)
    assert without is not None
    assert set(without[1].split()) <= pinned
    lerobot = re.search(r"^LEROBOT_PACKAGES := ([^#\n]+)", makefile, re.MULTILINE)
    assert lerobot is not None
    assert set(lerobot[1].split()) <= pinned
