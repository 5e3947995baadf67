"""Every page is true: its Python runs, its commands parse, its links lead somewhere, and the site builds."""

import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

from oat.cli import VERBS, main
from oat.data.episodes import STATE, Episodes
from oat.policies import AutoregressivePolicy
from oat.policies.config import AutoregressiveConfig
from oat.policies.context import describe_context
from oat.sims import libero, pusht, robocasa_assets
from tests.datasets import make_episodes, write_lerobot
from tests.texts import PAGES, RESULTS, ROOT, blocks, inline_code, name_of, shell_commands
from tests.tokenizers.fitted import DIM, fitted

README = ROOT / "README.md"
MAKEFILE = (ROOT / "Makefile").read_text()
# The last three are those of integrations/, whose own tests look at their options.
_OTHER_PROGRAMS = ("pip", "torchrun", "git", "hf", "lerobot-train", "lerobot-eval", "oat-to-lerobot")
_WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages take for granted: a data set, a tokenizer and a policy in the current directory."""
    folder = tmp_path_factory.mktemp("reader")
    write_lerobot(folder / "demonstrations", make_episodes(12))
    fitted("oat").save(folder / "tokenizer")
    states = np.zeros((20, 4), np.float32)
    seen = Episodes.from_arrays(states[:, :DIM], [20], ["reach"], observations={STATE: states})
    policy = AutoregressivePolicy(
        describe_context(seen, (STATE,)), fitted("oat"), AutoregressiveConfig.presets()["tiny"].model
    )
    policy.save(folder / "policy")
    return folder


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], None]:
    """The real command line up to the point where the verb would begin to work."""
    parse_and_run = tyro.extras.subcommand_cli_from_dict

    def only_parse(verbs: dict[str, Callable[..., None]], **options: Any) -> None:
        idle: dict[str, Callable[..., None]] = {
            verb: wraps(function)(lambda *_, **__: None) for verb, function in verbs.items()
        }
        parse_and_run(idle, **options)

    monkeypatch.setattr(tyro.extras, "subcommand_cli_from_dict", only_parse)

    def parse(words: list[str]) -> None:
        try:
            main(words)
        except SystemExit as refused:
            pytest.fail(f"oat {' '.join(words)} is refused: {refused}")

    return parse


@pytest.mark.parametrize("page", _WITH_PYTHON, ids=name_of)
def test_python_runs(page: Path, prepared: Path, tmp_path: Path) -> None:
    """In order, from top to bottom of a page, as a reader would type it; what a page registers ends with it."""
    here = shutil.copytree(prepared, tmp_path / "here")
    (tmp_path / "page.py").write_text("\n".join(blocks(page, "python")))
    environment = {**os.environ, "HF_HOME": str(tmp_path / "huggingface"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", str(tmp_path / "page.py")]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_enough_is_shown() -> None:
    assert README in _WITH_PYTHON
    assert len(_WITH_PYTHON) >= 6
    shown = {command.words[1] for page in PAGES for command in shell_commands(page) if command.program == "oat"}
    assert shown == set(VERBS)


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=name_of)
def test_commands_parse(page: Path, parse: Callable[[list[str]], None]) -> None:
    """Each `oat` command passes the real command line's parser and the checks of its configuration."""
    for block in blocks(page, "bash"):
        subprocess.run(["bash", "-n"], input=block, text=True, check=True)
    for command in shell_commands(page):
        if command.program == "oat":
            parse(list(command.words[1:]))
        elif command.program == "make":
            assert re.search(rf"^{command.words[1]}:", MAKEFILE, re.MULTILINE), command.words
        elif command.program == "python":
            assert command.words[1] == "-m" or (ROOT / command.words[1]).exists(), command.words
        else:
            assert command.program in _OTHER_PROGRAMS, f"a program that no test knows: {command.words}"


def exists(dotted: str) -> bool:
    """Tell whether a dotted name is a module, or an attribute below one."""
    try:
        pkgutil.resolve_name(dotted)
    except (AttributeError, ImportError):
        return False
    return True


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=name_of)
def test_code_in_running_text_exists(page: Path, parse: Callable[[list[str]], None]) -> None:
    for code in inline_code(page):
        if verb := re.match(r"oat (\w+)", code):
            assert verb[1] in VERBS, code
            if "--" in code and "…" not in code and "--help" not in code:
                parse(shlex.split(code)[1:])
        if re.fullmatch(r"oat(\.\w+)+", code):
            assert exists(code), code
        if target := re.fullmatch(r"make (\w+)", code):
            assert re.search(rf"^{target[1]}:", MAKEFILE, re.MULTILINE), code
        if script := re.match(r"(?:\w+=\S+ )*python (\S+\.py)", code):
            assert (ROOT / script[1]).exists(), code
        if re.fullmatch(r"(src|tests|docs|examples|benchmarks|scripts|results)/[\w./-]+", code):
            assert (ROOT / code).exists(), code


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """On disk, as they are read in the repository; `make docs` checks those of the site."""
    from_hooks = {"results", "notebooks", "contributing.md", "changelog.md", "security.md", "api"}
    for target in re.findall(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)", page.read_text()):
        on_site = page.parent.is_relative_to(ROOT / "docs") and target.removeprefix("../").split("/")[0] in from_hooks
        assert on_site or (page.parent / target).exists() or page.parent.name == "api", f"{name_of(page)}: {target}"


def test_assets_are_got_as_errors_say() -> None:
    text = (ROOT / "docs/simulators.md").read_text()
    for command in (
        libero.DOWNLOAD_COMMAND,
        libero.DEMONSTRATIONS,
        pusht.DEMONSTRATIONS,
        robocasa_assets.DOWNLOAD_COMMAND,
    ):
        assert command in text


def test_readme_is_short() -> None:
    assert len(README.read_bytes()) <= 8 * 1024
    assert (ROOT / "docs/images/coarse-to-fine.png").stat().st_size < 150_000


def test_the_tree_names_every_package() -> None:
    tree = README.read_text().split("## The files")[1].split("```")[1]
    named = re.findall(r"^  (\w+)/", tree, re.MULTILINE)
    assert sorted(named) == sorted(path.parent.name for path in (ROOT / "src/oat").glob("*/__init__.py"))


def test_every_package_has_a_page_of_the_api() -> None:
    shown = set(re.findall(r"api/(\w+)\.md", (ROOT / "mkdocs.yml").read_text())) - {"index"}
    assert shown == {path.parent.name for path in (ROOT / "src/oat").glob("*/__init__.py")}


def test_the_layers_are_those_that_lint_checks() -> None:
    (contract, *_) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (shown,) = blocks(ROOT / "docs/architecture.md", "text")
    assert shown.split("\n")[:-1] == [layer.replace("oat.", "") for layer in contract["layers"]]


def test_make_docs_is_as_strict_as_the_test_below() -> None:
    assert re.search(r"^docs:.*\n\t.*mkdocs build.*--strict", MAKEFILE, re.MULTILINE)
    assert re.search(r"^test:.*\n\t.*\blint campaign unit\b", MAKEFILE, re.MULTILINE)


def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    """For `make test`, which runs the tests and not `make docs` beside them."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text()
        fetched = re.findall(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=[\"']?(https?:)?//", text)
        assert not fetched, page
        # Markdown of the site wants more indentation than others do, or takes what follows for a paragraph.
        assert not re.search(r"^(?:\* |\| ?-)", re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL), re.MULTILINE), page
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:|@import", style.read_text()), style
