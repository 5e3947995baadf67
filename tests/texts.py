"""The texts of the repository: its pages, and the code and commands that they show."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
"""What documents the project; results/ documents what was measured with it."""
RESULTS = sorted((ROOT / "results").glob("*.md"))
_FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Z_]+=")  # before a program: its environment
_SEPARATORS = {";", "&&", "||", "|", "do", "done", "then", "fi"}


def name_of(path: Path) -> str:
    """Return a page's path as tests should call it."""
    return str(path.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a page in one language."""
    return [body for _, found, body in _FENCE.findall(page.read_text()) if found == language]


def inline_code(page: Path) -> list[str]:
    """Return what stands between backticks in running text, on one line."""
    text = _FENCE.sub("", page.read_text())
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]


@dataclass(frozen=True)
class Command:
    """One simple command of a shell block, with loop variables replaced by their first value."""

    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """Return what is run."""
        return self.words[0]


def commands(script: str) -> Iterator[Command]:
    """Yield the simple commands of a shell script: lines continued by a backslash, loops, lists and comments."""
    words = shlex.shlex(script.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars=";&|")
    words.commenters = ""
    words.whitespace_split = True
    variables: dict[str, str] = {}
    simple: list[str] = []
    for word in [*words, ";"]:
        if word not in _SEPARATORS:
            simple.append(word)
            continue
        if simple[:1] == ["for"]:
            variables[simple[1]] = simple[3]
        elif program := list(dropwhile(_ASSIGNMENT.match, simple)):
            yield Command(tuple(_fill(each, variables) for each in program))
        simple = []


def shell_commands(page: Path) -> list[Command]:
    """Return all simple commands of a page's shell blocks."""
    return [each for block in blocks(page, "bash") for each in commands(_without_comments(block))]


def _without_comments(script: str) -> str:
    return re.sub(r"(^|\s)#.*$", "", script, flags=re.MULTILINE)


def _fill(word: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda found: variables.get(found[1], found[0]), word)
