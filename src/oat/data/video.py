"""Camera streams as mp4: encoding episode after episode, and decoding single frames by their time (PyAV)."""

import os
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, UInt8

from oat.data.columns import file_identity
from oat.errors import CorruptDataset
from oat.io.extras import import_extra

CODEC = "h264"
_ENCODER = "libx264"
_OPTIONS = {
    "g": "2",  # a key frame every second frame, as LeRobot does: any frame costs at most two decodes
    "crf": "18",  # visually lossless
    "preset": "veryfast",
    "threads": "1",  # the callers run one process per core
}

# What PyAV raises for damaged files: FFmpeg's errors, which are OSError, ValueError or EOFError among others, and
# missing attributes of streams whose codec it does not know.
_DAMAGED = (OSError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError, EOFError, RuntimeError)


def pixel_format(height: int, width: int) -> str:
    """Return the encoder's pixel format: halved chroma needs even sides, so images with odd ones keep full chroma."""
    return "yuv444p" if height % 2 or width % 2 else "yuv420p"


class VideoEncoder:
    """Write one mp4 file that grows by whole episodes."""

    def __init__(self, path: Path, fps: float, height: int, width: int) -> None:
        av = import_extra("av", "formats")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.fps = fps
        self.num_frames = 0
        self.bytes_encoded = 0
        self._container = av.open(str(path), "w")
        self._stream = self._container.add_stream(_ENCODER, rate=Fraction(fps).limit_denominator(100000))
        self._stream.height = height
        self._stream.width = width
        self._stream.pix_fmt = pixel_format(height, width)
        self._stream.options = _OPTIONS
        self._new_frame = av.VideoFrame.from_ndarray

    @property
    def seconds(self) -> float:
        """Return how long the video is so far, which is when the next episode begins."""
        return self.num_frames / self.fps

    def add(self, frames: UInt8[np.ndarray, "frames height width 3"]) -> None:
        """Append an episode's images, one frame each."""
        for image in frames:
            frame = self._new_frame(np.ascontiguousarray(image), format="rgb24")
            frame.pts = self.num_frames
            self._mux(frame)
            self.num_frames += 1

    def _mux(self, frame: Any) -> None:
        packets = self._stream.encode(frame)
        self.bytes_encoded += sum(packet.size for packet in packets)
        self._container.mux(packets)

    def close(self) -> None:
        """Write what the encoder still holds and finish the file."""
        self._mux(None)
        self._container.close()

    def abandon(self) -> None:
        """Release the file, whatever state it is in."""
        with suppress(OSError):
            self._container.close()


class VideoDecoder:
    """Read single frames of one mp4 file by their times."""

    def __init__(self, path: Path) -> None:
        av = import_extra("av", "formats")
        try:
            self._container = av.open(str(path))
            self._stream = self._container.streams.video[0]
            self._stream.codec_context.thread_count = 1  # the callers run one process per core
        except _DAMAGED as error:
            raise CorruptDataset(f"{path}: not a readable video ({error})") from error
        self.path = path
        self._frames: Iterator[Any] = iter(())
        self._time = np.inf  # of the frame decoded last
        self._image: np.ndarray | None = None

    def read(self, times: Float64[np.ndarray, " n"], fps: float) -> UInt8[np.ndarray, "n height width 3"]:
        """Return the frames that are shown at the given times, which must not decrease."""
        try:
            return np.stack([self._at(time, fps) for time in times.tolist()])
        except _DAMAGED as error:
            raise CorruptDataset(f"{self.path}: cannot decode the video ({error})") from error

    def spread(self, count: int) -> UInt8[np.ndarray, "count height width 3"]:
        """Return so many frames of the whole video: the middle ones of equal parts."""
        frames = self._stream.frames
        fps = float(self._stream.average_rate or 0)
        if frames < 1 or fps <= 0:
            raise CorruptDataset(f"{self.path}: the video does not say how many frames it has")
        numbers = ((np.arange(count) + 0.5) * frames / count).astype(np.int64)
        return self.read(numbers / fps, fps)

    def _at(self, time: float, fps: float) -> np.ndarray:
        """Return the frame shown at a time, decoding on from the last one where that is cheaper than seeking."""
        half = 0.5 / fps  # times in files are rounded, so take the frame that is nearest
        if not self._time - half <= time <= self._time + 8 / fps:  # backwards, or so far ahead that seeking is cheaper
            self._container.seek(int(max(time, 0) / self._stream.time_base), stream=self._stream)
            self._frames = self._container.decode(self._stream)
            self._time = -np.inf
        while self._time < time - half:
            frame = next(self._frames, None)
            if frame is None:
                raise CorruptDataset(f"{self.path}: the video ends before {time:.3f} s")
            if frame.time is None:
                raise CorruptDataset(f"{self.path}: a frame of the video has no time")
            self._time = float(frame.time)
            self._image = None
            if self._time >= time - half:
                self._image = frame.to_ndarray(format="rgb24")
        assert self._image is not None
        return self._image


def open_video(path: Path) -> VideoDecoder:
    """Return a decoder that stays open between reads, one per process: FFmpeg's state must not cross a fork."""
    try:
        return _open_video(path, file_identity(path), os.getpid())
    except FileNotFoundError as error:
        raise CorruptDataset(f"{path}: named by the metadata, but not there") from error


@lru_cache(maxsize=16)
def _open_video(path: Path, identity: tuple[int, int, int], process: int) -> VideoDecoder:
    return VideoDecoder(path)
