"""Render MuJoCo scenes offscreen, fast enough on machines without a graphics card.

`python -m oat.sims.rendering` says which graphics library is used, and fails where there is none.
"""

import atexit
import ctypes
import ctypes.util
import os
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from oat.errors import SimulatorError, unknown_name

INSTALL_COMMAND = "apt-get install -y libosmesa6"
_EGL_VENDORS = ("/usr/share/glvnd/egl_vendor.d", "/etc/glvnd/egl_vendor.d")


def graphics_library() -> str | None:
    """Return the value for MUJOCO_GL: the user's own choice, else EGL or OSMesa, whichever this machine has."""
    if chosen := os.environ.get("MUJOCO_GL"):
        return chosen
    if not sys.platform.startswith("linux"):
        return "glfw"
    # libEGL alone only dispatches: without a vendor's file it loads, and opens no context.
    if _loads("EGL", "libEGL.so.1") and any(any(Path(folder).glob("*.json")) for folder in _EGL_VENDORS):
        return "egl"
    if _loads("OSMesa", "libOSMesa.so.8"):
        return "osmesa"
    return "glfw" if os.environ.get("DISPLAY") else None


def _loads(name: str, file: str) -> bool:
    """Return whether a shared library can be loaded."""
    try:
        ctypes.CDLL(ctypes.util.find_library(name) or file)
    except OSError:
        return False
    return True


def prepare_graphics() -> None:
    """Choose the graphics library before `mujoco` is imported; without one, only rendering fails."""
    if library := graphics_library():
        os.environ.setdefault("MUJOCO_GL", library)


class CameraRenderer:
    """Render named cameras of one MuJoCo model, without the effects that make software rendering slow.

    Multisampling, shadows and reflections cost 3–20 times the rest of a frame; with `effects` they are drawn all the
    same, as in published images. Fixed cameras that are mounted upside down (MetaWorld's corners) are turned by 180°.
    Geometries of hidden groups are not drawn.
    """

    def __init__(
        self,
        model: Any,
        cameras: Sequence[str],
        size: int,
        hidden_groups: Sequence[int] = (),
        effects: bool = False,
    ) -> None:
        if graphics_library() is None:
            raise SimulatorError(f"rendering needs EGL or OSMesa, and this machine has neither: {INSTALL_COMMAND}")
        import mujoco

        available = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_CAMERA, i) for i in range(model.ncam)]
        for camera in cameras:
            if camera not in available:
                raise unknown_name("camera", camera, available)
        if not effects:
            model.vis.quality.offsamples = 0
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, size)
        model.vis.global_.offheight = max(model.vis.global_.offheight, size)
        self.model = model
        self.size = size
        self._options = mujoco.MjvOption()
        self._options.geomgroup[list(hidden_groups)] = 0
        self._turned = {camera: _is_upside_down(model, available.index(camera)) for camera in cameras}
        try:
            self._renderer = mujoco.Renderer(model, size, size)
        except Exception as error:  # the GL bindings raise errors of many kinds
            raise SimulatorError(f"cannot open an offscreen {os.environ.get('MUJOCO_GL')} context: {error}") from error
        self.close = weakref.finalize(self, self._renderer.close)
        atexit.register(self.close)  # before the GL libraries that are imported by now are shut down
        self._hidden = () if effects else (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION)

    def render(self, data: Any, camera: str) -> UInt8[np.ndarray, "size size 3"]:
        """Return the image of a camera at the state in MuJoCo's data."""
        self._renderer.update_scene(data, camera, self._options)
        for flag in self._hidden:  # update_scene does not touch the flags, but a new scene has them on
            self._renderer.scene.flags[flag] = 0
        image = self._renderer.render()
        return image[::-1, ::-1] if self._turned[camera] else image


def project(model: Any, data: Any, camera: str, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 2"]:
    """Return where a camera sees points of the world, as shares of a square picture with (0, 0) at its upper left."""
    number = model.camera(camera).id
    axes = data.cam_xmat[number].reshape(3, 3)  # in its columns: right, up, backwards
    seen = (points - data.cam_xpos[number]) @ axes
    extent = 2 * np.tan(np.deg2rad(model.cam_fovy[number]) / 2)  # of the picture, at distance 1
    shares = 0.5 + seen[:, :2] * (1, -1) / (extent * -seen[:, 2:])
    return 1 - shares if _is_upside_down(model, number) else shares


def _is_upside_down(model: Any, camera: int) -> bool:
    """Return whether a camera fixed to the world has its up axis pointing down."""
    return bool(model.cam_bodyid[camera] == 0 and model.cam_mat0[camera].reshape(3, 3)[2, 1] < -0.1)


if __name__ == "__main__":
    library = graphics_library()
    sys.stdout.write(f"{library or 'no graphics library'}\n")
    sys.exit(library is None)
