"""Which graphics library is used, and what happens without one."""

import subprocess
import sys

import pytest

from oat.errors import SimulatorError
from oat.sims import rendering
from oat.sims.metaworld import MetaWorldEnv


def test_this_machine_can_render() -> None:
    """`make` installs a library; on a machine where it could not, this fails rather than skips."""
    done = subprocess.run([sys.executable, "-m", "oat.sims.rendering"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.strip() in ("egl", "osmesa", "glfw")


def test_the_users_choice_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert rendering.graphics_library() == "osmesa"


def test_without_a_library_only_rendering_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(rendering, "_loads", lambda name, file: False)
    assert rendering.graphics_library() is None
    MetaWorldEnv("reach").reset(0)
    with pytest.raises(SimulatorError, match="apt-get install -y libosmesa6"):
        MetaWorldEnv("reach", ("corner2",))
