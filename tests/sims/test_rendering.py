"""Which graphics library is used, and what happens without one."""

import subprocess
import sys

import numpy as np
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


@pytest.mark.parametrize("camera", ["corner4", "topview", "gripperPOV"])  # turned, straight, moving
def test_points_are_projected_to_where_they_are_seen(camera: str) -> None:
    """The puck's position against the pixels that show it."""
    import mujoco

    env, size = MetaWorldEnv("push", (camera,), image_size=200), 200
    env.reset(0)
    for _ in range(10):
        env.step(np.array([-1, 0.5, 0, 0], np.float32))
    model, data = env._env.model, env._env.data
    renderer = mujoco.Renderer(model, size, size)
    renderer.enable_segmentation_rendering()
    renderer.update_scene(data, camera)
    segments = renderer.render()
    renderer.close()
    if env._renderer is not None and env._renderer._turned[camera]:
        segments = segments[::-1, ::-1]
    (puck,) = (g for g in range(model.ngeom) if model.geom(g).name == "objGeom")
    rows, columns = np.nonzero((segments[..., 0] == puck) & (segments[..., 1] == int(mujoco.mjtObj.mjOBJ_GEOM)))
    assert len(rows) > 5
    (found,) = size * rendering.project(model, data, camera, data.geom_xpos[puck][None])
    np.testing.assert_allclose(found, (columns.mean() + 0.5, rows.mean() + 0.5), atol=3)
