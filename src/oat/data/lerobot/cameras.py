"""The cameras of a LeRobotDataset, decoded when they are indexed: mp4 files, or images inside the parquet files."""

import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oat.data.columns import UINT8, file_identity, frame_numbers
from oat.data.lerobot.metadata import explain_read_errors
from oat.data.video import open_video
from oat.errors import CorruptDataset
from oat.io.extras import import_extra


@dataclass(frozen=True)
class VideoFrames:
    """Read the frames of a camera that is stored as mp4 files, each of which holds many episodes."""

    files: tuple[Path, ...]  # one per episode
    from_times: np.ndarray  # the episode's first frame inside its file, in seconds
    starts: np.ndarray
    fps: float
    shape: tuple[int, ...]
    dtype: np.dtype[Any] = UINT8

    def __getitem__(self, frames: np.ndarray | slice) -> np.ndarray:
        # Decoding forwards is cheap and backwards needs a seek: decode each wanted frame once, in order.
        wanted, back = np.unique(frame_numbers(frames, self.shape[0]), return_inverse=True)
        owners = np.searchsorted(self.starts, wanted, side="right") - 1
        decoded = [np.empty((0, *self.shape[1:]), np.uint8)]
        for owner in np.unique(owners):
            inside = wanted[owners == owner] - self.starts[owner]
            images = open_video(self.files[owner]).read(self.from_times[owner] + inside / self.fps, self.fps)
            if images.shape[1:] != self.shape[1:]:
                file = self.files[owner]
                raise CorruptDataset(f"{file}: frames are {images.shape[1:]}, info.json says {self.shape[1:]}")
            decoded.append(images)
        return np.concatenate(decoded)[back]


@dataclass(frozen=True)
class ImageColumn:
    """Read the frames of a camera that is stored as encoded images in the data files' {bytes, path} column."""

    files: tuple[Path, ...]
    first_rows: np.ndarray  # the global index of each row group's first row
    groups: tuple[tuple[int, int], ...]  # (file, row group)
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] = UINT8

    @classmethod
    def locate(cls, files: tuple[Path, ...], key: str, shape: tuple[int, ...]) -> "ImageColumn":
        """Find the row groups of all files, which are the smallest pieces that parquet can read."""
        first_rows = [0]
        groups = []
        for number, file in enumerate(files):
            with explain_read_errors(file):
                metadata = pq.read_metadata(file)
            for group in range(metadata.num_row_groups):
                groups.append((number, group))
                first_rows.append(first_rows[-1] + metadata.row_group(group).num_rows)
        return cls(files, np.array(first_rows[:-1]), tuple(groups), key, shape)

    def __getitem__(self, frames: np.ndarray | slice) -> np.ndarray:
        frames = frame_numbers(frames, self.shape[0])
        out = np.empty((len(frames), *self.shape[1:]), np.uint8)
        owners = np.searchsorted(self.first_rows, frames, side="right") - 1
        for owner in np.unique(owners):
            file, group = self.groups[owner]
            column = _image_bytes(self.files[file], file_identity(self.files[file]), group, self.key)
            for position in np.flatnonzero(owners == owner):
                row = int(frames[position] - self.first_rows[owner])
                out[position] = self._decode(column[row].as_py(), self.files[file])
        return out

    def _decode(self, data: bytes | None, file: Path) -> np.ndarray:
        pil = import_extra("PIL.Image", "formats")
        try:
            image = pil.open(io.BytesIO(data or b""))
            height, width, _ = self.shape[1:]
            # Before it is decompressed: an image of a few bytes may claim to be of any size.
            if (image.height, image.width) != (height, width):
                size = f"{image.height} × {image.width}"
                raise CorruptDataset(f"{file}: {self.key} is {size}, info.json says {height} × {width}")
            return np.asarray(image.convert("RGB"))
        except (OSError, ValueError, SyntaxError, pil.DecompressionBombError, pil.DecompressionBombWarning) as error:
            raise CorruptDataset(f"{file}: {self.key} holds an unreadable image ({error})") from error


@lru_cache(maxsize=8)  # shuffled windows come back to the same row groups
def _image_bytes(file: Path, identity: tuple[int, int, int], group: int, key: str) -> pa.Array:
    """Return a row group's encoded images; `identity` keeps a file that was replaced from being served again."""
    with explain_read_errors(file), pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        return parquet.read_row_group(group, columns=[key])[key].combine_chunks().field("bytes")
