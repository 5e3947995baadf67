"""Camera images in zarr's compressed chunks of frames, as bytes."""

import math
import shutil
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oat.data.columns import UINT8, cache_directory, frame_numbers, load_column
from oat.data.zarr_store import ZarrArray, check_complete
from oat.errors import InvalidEpisode
from oat.io.notes import note

_CACHE_BYTES = 128 * 2**20  # of decoded image chunks, per camera


@dataclass
class ChunkedImages:
    """Read images that are stored in compressed chunks of frames; the chunks used last stay decoded.

    A training reads at random: nearly every frame would decode a chunk of hundreds. So when a chunk is needed that had
    to give way before, all are decoded once, into the cache of columns, and read from there.
    Float images hold whole numbers 0…255 times `scale`, which is checked for every chunk.
    """

    source: ZarrArray
    shape: tuple[int, ...]
    scale: float
    dtype: np.dtype[Any] = UINT8
    _decoded: OrderedDict[int, np.ndarray] = field(default_factory=OrderedDict, repr=False)
    _gave_way: set[int] = field(default_factory=set, repr=False)
    _all: np.ndarray | None = field(default=None, repr=False)
    _has_room: bool = field(default=True, repr=False)

    def __getitem__(self, frames: np.ndarray | slice) -> np.ndarray:
        frames = frame_numbers(frames, self.shape[0])
        chunks, rows = np.divmod(frames, self.source.rows_per_chunk)
        needed = np.unique(chunks)
        if self._all is None and self._has_room and self._gave_way.intersection(needed.tolist()):
            self._decode_all()
        if self._all is not None:
            return self._all[frames]
        out = np.empty((len(frames), *self.shape[1:]), np.uint8)
        for chunk in needed:
            mine = chunks == chunk
            out[mine] = self._chunk(int(chunk))[rows[mine]]
        return out

    def _chunk(self, chunk: int) -> np.ndarray:
        """Return a decoded chunk, from memory if it is there."""
        if not self._decoded:
            check_complete(self.source.store, self.source.name, self.source.array)
        if chunk not in self._decoded:
            self._decoded[chunk] = self._to_bytes(self.source.chunk(chunk))
            while len(self._decoded) > 1 and sum(part.nbytes for part in self._decoded.values()) > _CACHE_BYTES:
                self._gave_way.add(self._decoded.popitem(last=False)[0])
        self._decoded.move_to_end(chunk)
        return self._decoded[chunk]

    def _decode_all(self) -> None:
        """Decode all images into the cache of columns, unless that would take more than half of the disk's room."""
        check_complete(self.source.store, self.source.name, self.source.array)
        folder = cache_directory()
        size = math.prod(self.shape)
        if size > _free_bytes(folder) // 2:
            note(
                f"{self.source.store}: its {size / 1e9:.1f} GB of images are decoded again and again, which is slow, "
                f"because {folder} has not twice that free; OAT_CACHE_DIR chooses another place"
            )
            self._has_room = False
            return
        note(f"{self.source.store}: its images are decoded once, {size / 1e9:.1f} GB, into {folder}")
        blocks = (self._to_bytes(self.source.chunk(number)) for number in range(self.source.num_chunks))
        self._all = load_column(self.source.name, self.shape, lambda: blocks, self.source.files, UINT8)
        self._decoded = OrderedDict()

    def _to_bytes(self, values: np.ndarray) -> np.ndarray:
        if values.dtype == UINT8:
            return values
        if not _are_bytes(values, self.scale):
            raise InvalidEpisode(f"{self.source.store}: {self.source.name} holds values that are not an image's")
        return np.rint(values * np.float32(self.scale)).astype(np.uint8)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is decoded: another process decodes or maps it for itself."""
        return {**self.__dict__, "_decoded": OrderedDict(), "_all": None}


def _free_bytes(folder: Path) -> int:
    """Return how much room there is for a folder that may not exist yet."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return shutil.disk_usage(existing).free


def _are_bytes(values: np.ndarray, scale: float) -> bool:
    """Return whether all values times `scale` are whole numbers 0…255, up to the rounding of float32."""
    scaled = values * np.float32(scale)
    return bool((np.abs(scaled - np.rint(scaled)) < 1e-3).all() and scaled.min() >= 0 and scaled.max() <= 255)


def image_scale(source: ZarrArray) -> float | None:
    """Return 1 for float images 0…255, 255 for 0…1, None for other arrays; the first chunk that tells decides."""
    for number in range(source.num_chunks):
        values = source.chunk(number)
        if values.max() > 1:
            return 1.0 if _are_bytes(values, 1.0) else None
        if not _are_bytes(values, 1.0):  # neither all 0 nor all 1
            return 255.0 if _are_bytes(values, 255.0) else None
    return 1.0
