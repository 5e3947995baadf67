"""What installs the project elsewhere says the same as what is tested: uv.lock, the Dockerfile."""

import re
import tomllib

from tests.test_names import normal
from tests.texts import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def test_the_lock_has_the_pinned_versions() -> None:
    locked = {each["name"]: each.get("version") for each in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {normal(name): version for line in lines for name, version in re.findall(r"^([\w.-]+)==([^\s#]+)", line)}
    assert len(pinned) > 50
    different = {name: version for name, version in pinned.items() if locked.get(name, version) != version}
    assert not different, "scripts/lock.sh writes uv.lock anew"
    assert "pypi.org" in (ROOT / "uv.lock").read_text()


def test_the_image_runs_commands_that_exist() -> None:
    targets = re.findall(r'make (\w+)|"make", "(\w+)"', DOCKERFILE)
    named = {one or other for one, other in targets}
    assert {"setup", "demo", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


def test_the_image_copies_what_is_there() -> None:
    for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_the_image_installs_from_what_the_installation_depends_on() -> None:
    (depends,) = re.findall(r"^\$\(VENV\)/\.installed: (.+)$", MAKEFILE, re.MULTILINE)
    before = DOCKERFILE.split("RUN make setup")[0]
    assert all(file in before for file in depends.split())
