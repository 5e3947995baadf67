"""What installs the project elsewhere says the same as what is tested: the Dockerfile."""

import re

from tests.texts import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


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
