"""The files that a growing LeRobotDataset v3.0 consists of: parquet for numbers and images, mp4 for cameras.

Each file holds consecutive episodes and is followed by the next one when it reaches its size.
"""

import io
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oat.data.episodes import is_image
from oat.data.lerobot.schemas import IMAGE_TYPE
from oat.data.video import VideoEncoder
from oat.io.atomic import new_file
from oat.io.extras import import_extra

CHUNK_FILES = 1000
"""Files per numbered folder, which LeRobot calls a chunk."""
DATA_FILE_BYTES = 100 * 2**20
VIDEO_FILE_BYTES = 200 * 2**20
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"

# A row group is written when it holds this much: reading one image decompresses its whole group.
_GROUP_ROWS = 8192
_GROUP_BYTES = 32 * 2**20


class DataFiles:
    """Write the rows of episodes into parquet files, in row groups of bounded size."""

    def __init__(self, root: Path, first_file: int, schema: pa.Schema) -> None:
        self._root = root
        self._file = first_file
        self._schema = schema
        self._buffer: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0
        self._sink: Any = None
        self._writer: Any = None

    def add(self, columns: Mapping[str, np.ndarray]) -> dict[str, int]:
        """Append an episode's rows, and return the columns of `meta/episodes` that say in which file they are."""
        table = pa.table([_arrow_column(columns[f.name]) for f in self._schema], schema=self._schema)
        self._buffer.append(table)
        self._rows += len(table)
        self._bytes += table.nbytes
        chunk, file = divmod(self._file, CHUNK_FILES)
        if self._bytes >= _GROUP_BYTES or self._rows >= _GROUP_ROWS:
            self._flush()
            if self._sink.tell() >= DATA_FILE_BYTES:
                self.close()
                self._file += 1
        return {"data/chunk_index": chunk, "data/file_index": file}

    def _flush(self) -> None:
        if not self._buffer:
            return
        if self._writer is None:
            chunk, file = divmod(self._file, CHUNK_FILES)
            path = self._root / DATA_PATH.format(chunk_index=chunk, file_index=file)
            self._sink = new_file(path).open("wb")  # a file of our own, because the writer does not tell how far it is
            self._writer = pq.ParquetWriter(self._sink, self._schema, write_page_checksum=True)
        self._writer.write_table(pa.concat_tables(self._buffer))
        self._buffer = []
        self._rows = 0
        self._bytes = 0

    def close(self) -> None:
        """Write what is buffered and finish the current file."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
        self._writer = None
        self._sink = None

    def abandon(self) -> None:
        """Release the current file without finishing it."""
        if self._sink is not None:
            with suppress(OSError):
                self._sink.close()


class VideoFiles:
    """Write one camera's episodes into mp4 files, one after the other."""

    def __init__(self, root: Path, first_file: int, key: str, fps: float, shape: list[int]) -> None:
        self._root = root
        self._file = first_file
        self._key = key
        self._fps = fps
        self._shape = shape
        self._encoder: VideoEncoder | None = None

    def add(self, frames: np.ndarray) -> dict[str, int | float]:
        """Encode an episode, and return the columns of `meta/episodes` that say in which file and when it is shown."""
        chunk, file = divmod(self._file, CHUNK_FILES)
        if self._encoder is None:
            path = self._root / VIDEO_PATH.format(video_key=self._key, chunk_index=chunk, file_index=file)
            self._encoder = VideoEncoder(new_file(path), self._fps, *self._shape[:2])
        begin = self._encoder.seconds
        self._encoder.add(frames)
        place = {
            "chunk_index": chunk,
            "file_index": file,
            "from_timestamp": begin,
            "to_timestamp": self._encoder.seconds,
        }
        if self._encoder.bytes_encoded >= VIDEO_FILE_BYTES:
            self.close()
            self._file += 1
        return {f"videos/{self._key}/{name}": value for name, value in place.items()}

    def close(self) -> None:
        """Finish the current file, if there is one."""
        if self._encoder is not None:
            encoder = self._encoder
            self._encoder = None  # first: when closing fails, there is nothing left to abandon
            encoder.close()

    def abandon(self) -> None:
        """Release the current file without finishing it."""
        if self._encoder is not None:
            self._encoder.abandon()
            self._encoder = None


def _arrow_column(array: np.ndarray) -> pa.Array:
    """Return an episode's values of one feature in the type that `data_schema` gives it."""
    if is_image(array):
        return pa.array([{"bytes": _png(image), "path": None} for image in array], IMAGE_TYPE)
    if array.ndim == 1 or array.shape[1:] == (1,):
        return pa.array(array.reshape(-1))
    if array.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])
    nested = pa.array(array.reshape(-1))
    for dim in range(array.ndim - 1, 0, -1):
        offsets = np.arange(0, len(nested) + 1, array.shape[dim], dtype=np.int32)
        nested = pa.ListArray.from_arrays(pa.array(offsets), nested)
    return nested


def _png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    import_extra("PIL.Image", "formats").fromarray(image).save(buffer, "png", compress_level=3)
    return buffer.getvalue()
