"""What is published works: the wheel, installed into an empty environment beside the libraries that it needs."""

import os
import re
import resource
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

import oat
from oat.cli import VERBS
from oat.io.extras import DISTRIBUTION
from tests.datasets import make_episodes, write_npz
from tests.texts import ROOT, blocks

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SNIPPET_SECONDS = 20


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that must not see this checkout, and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `make wheel`'s command puts a wheel and a source distribution."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it; the libraries that it needs are those of the present one."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    # After the wheel on the path, and without reading its .pth files: an editable oat there is not found.
    Path(packages, "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import oat; print(oat.__file__)", cwd=folder).strip()
    assert Path(where).is_relative_to(folder)
    return folder


def test_its_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/oat").rglob("*") if path.is_file()}
    assert {name for name in package if "__pycache__" not in name} <= names
    assert "oat/py.typed" in names
    assert {Path(name).suffix for name in names if name.startswith("oat/report/")} >= {".py", ".css", ".html", ".js"}
    assert not [name for name in names if not name.startswith(("oat/", "ordered_action_tokenization-"))]


def test_its_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(path).decode())
    assert metadata["Name"] == DISTRIBUTION
    assert metadata["Version"] == oat.__version__
    assert re.search(rf"^version: {re.escape(oat.__version__)}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    required = metadata.get_all("Requires-Dist", [])
    assert any(each.startswith("numba") and "libero" in each for each in required)  # the extra within the extra
    assert not [each for each in required if each.startswith(("oat[", "oat ", "oat;"))]


def test_the_source_distribution_builds_the_same(built: Path, wheel: Path, tmp_path: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    run("tar", "xzf", source, "--strip-components=1", cwd=tmp_path)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "again", ".", cwd=tmp_path)
    again = zipfile.ZipFile(tmp_path / "again" / wheel.name)
    assert set(again.namelist()) == set(zipfile.ZipFile(wheel).namelist())


def test_the_command(environment: Path, tmp_path: Path) -> None:
    shown = run(environment / "bin/oat", "--help", cwd=tmp_path)
    assert all(verb in shown for verb in VERBS)


def test_the_first_snippet_and_the_page(environment: Path, tmp_path: Path) -> None:
    """As a stranger would begin: the README's snippet as a file, then a page of what it left behind."""
    (tmp_path / "first.py").write_text(blocks(ROOT / "README.md", "python")[0])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = run(environment / "bin/python", "first.py", cwd=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Its own time, because others use the processor while tests run.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < SNIPPET_SECONDS
    errors = [float(line.split()[-1]) for line in printed.splitlines()]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.5 * errors[0]
    write_npz(tmp_path / "demonstrations.npz", make_episodes(12, action_dim=2))
    run(environment / "bin/oat", "report", ".", "--data", "demonstrations.npz", "--out", "page.html", cwd=tmp_path)
    page = (tmp_path / "page.html").read_text()
    assert page.lstrip().startswith("<!")
    assert "<style" in page
    assert "<script" in page
    assert "tokenizer" in page
