"""Let torchvision be imported beside a torch that its compiled part was not built for.

LeRobot asks for a torch older than ours. Its commands need torchvision for transforms of images only, which are plain
PyTorch: two operators have to be declared, though never called, before the import succeeds, and the reader of videos,
which later versions dropped, is made of PyAV. A `.pth` file imports this module when Python starts; it does nothing
until somebody imports torchvision.
"""

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


class VideoReader:
    """Read the frames of a video from a keyframe on, as torchvision did."""

    def __init__(self, path: str, stream: str = "video") -> None:
        import av

        self.container = av.open(path)
        self._stream: Any = self.container.streams.video[0]

    def seek(self, seconds: float, keyframes_only: bool = True) -> "VideoReader":
        """Go to the keyframe at or before a time."""
        self.container.seek(int(seconds / self._stream.time_base), stream=self._stream)
        return self

    def __iter__(self) -> Iterator[dict[str, Any]]:
        import torch

        frame: Any
        for frame in self.container.decode(self._stream):
            pixels = torch.from_numpy(frame.to_ndarray(format="rgb24"))
            yield {"data": pixels.permute(2, 0, 1), "pts": float(frame.pts * self._stream.time_base)}


_declared: list[Any] = []  # a library's operators are gone with it


class _Finder(PathFinder):
    """Find torchvision as usual, and prepare what its import needs."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torchvision":
            return None
        spec = super().find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            _declare_operators()
            load: Any = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _complete(module, load)  # type: ignore[method-assign]
        return spec


def _declare_operators() -> None:
    """Tell PyTorch once that the operators exist; torchvision may be looked for, and not imported, before."""
    if _declared:
        return
    import torch

    make: Any = torch.library.Library
    library = make("torchvision", "FRAGMENT")
    _declared.append(library)
    for signature in _OPERATORS:
        library.define(signature)


def _complete(module: ModuleType, load: Any) -> None:
    """Import torchvision, and add what LeRobot misses in it."""
    load(module)
    io: Any = module.io
    if not hasattr(io, "VideoReader"):
        io.VideoReader = VideoReader
    if not hasattr(module, "set_video_backend"):
        module.set_video_backend = lambda backend: None  # type: ignore[attr-defined]


if importlib.util.find_spec("torch") is not None:
    sys.meta_path.insert(0, _Finder)
