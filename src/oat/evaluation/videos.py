"""A video of an episode as an onlooker sees it, with the path that the policy predicts drawn into it."""

import tempfile
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from oat.data.video import VideoEncoder
from oat.interfaces import Filmable
from oat.io.extras import import_extra

_SIZE = 320
_FPS = 25.0  # about; of a simulator that steps faster only some steps are shown, so that time passes as it should
_EXECUTED_COLOUR = (255, 220, 0)  # of the part of the predicted path that will be executed
_LEFT_COLOUR = (150, 220, 255)  # of the rest of it
_LINE_WIDTH = 3


class Film:
    """Collect the frames of one episode, and make a video of them."""

    def __init__(self, environment: Filmable) -> None:
        self._environment = environment
        self._every = max(1, round(environment.fps / _FPS))
        self._frames: list[UInt8[np.ndarray, "size size 3"]] = []
        self._path: Float[np.ndarray, "points 2"] = np.zeros((0, 2))
        self._executed = 0
        self._steps = 0
        self._draw = import_extra("PIL.ImageDraw", "formats").Draw
        self._to_image = import_extra("PIL.Image", "formats").fromarray

    def predict(self, actions: np.ndarray | None, executed: int) -> None:
        """Draw the path of this chunk from now on, of which `executed` actions are executed."""
        self._path = np.zeros((0, 2)) if actions is None else self._environment.foresee(actions)
        self._executed = executed

    def expose(self, last: bool = False) -> None:
        """Take a picture, if it is time for one or the last one."""
        if last or self._steps % self._every == 0:
            self._frames.append(self._with_path(self._environment.render(_SIZE)))
        self._steps += 1

    def _with_path(self, frame: UInt8[np.ndarray, "size size 3"]) -> UInt8[np.ndarray, "size size 3"]:
        image = self._to_image(np.ascontiguousarray(frame))
        corners = [tuple(point) for point in (_SIZE * self._path).tolist()]
        for colour, part in (
            (_LEFT_COLOUR, corners[self._executed :]),
            # One corner more, so that the two lines meet; drawn last, it lies on top.
            (_EXECUTED_COLOUR, corners[: self._executed + 1]),
        ):
            if len(part) > 1:
                self._draw(image).line(part, fill=colour, width=_LINE_WIDTH, joint="curve")
        return np.asarray(image)

    def develop(self) -> bytes:
        """Return the whole video, as the contents of an mp4 file."""
        # The encoder writes files only, and the worker may be on another machine than the records.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "film.mp4"
            encoder = VideoEncoder(file, self._environment.fps / self._every, _SIZE, _SIZE)
            encoder.add(np.stack(self._frames))
            encoder.close()
            return file.read_bytes()
