"""The files that a growing LeRobotDataset v3.0 consists of: parquet for numbers and images, mp4 for cameras.

Each file holds consecutive episodes and is followed by the next one when it reaches its size.
"""

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oat.data.episodes import is_image
from oat.data.lerobot import INDEX_FEATURES
from oat.data.statistics import QUANTILES
from oat.data.video import VideoEncoder
from oat.io.extras import import_extra

CHUNK_FILES = 1000
DATA_FILE_BYTES = 100 * 2**20
VIDEO_FILE_BYTES = 200 * 2**20
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
INDEX_DTYPES = dict.fromkeys(INDEX_FEATURES, "int64") | {"timestamp": "float32"}

_GROUP_ROWS, _GROUP_BYTES = 8192, 32 * 2**20  # a row group is written when it holds this much


class DataFiles:
    """The data files: rows are buffered into row groups, and a full file is followed by the next."""

    def __init__(self, root: Path, first_file: int, schema: pa.Schema) -> None:
        self._root, self._file, self._schema = root, first_file, schema
        self._buffer: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._sink: Any = None
        self._writer: Any = None

    def add(self, columns: Mapping[str, np.ndarray]) -> dict[str, int]:
        """Append an episode's rows; says in which file they are."""
        table = pa.table([_arrow_column(columns[f.name]) for f in self._schema], schema=self._schema)
        self._buffer.append(table)
        self._rows, self._bytes = self._rows + len(table), self._bytes + table.nbytes
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
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = path.open("wb")
            self._writer = pq.ParquetWriter(self._sink, self._schema)
        self._writer.write_table(pa.concat_tables(self._buffer))
        self._buffer, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
        self._writer = self._sink = None

    def abandon(self) -> None:
        if self._sink is not None:
            with suppress(OSError):
                self._sink.close()


class VideoFiles:
    """One camera's mp4 files, each holding consecutive episodes."""

    def __init__(self, root: Path, first_file: int, key: str, fps: float, shape: list[int]) -> None:
        self._root, self._file, self._key, self._fps, self._shape = root, first_file, key, fps, shape
        self._encoder: VideoEncoder | None = None

    def add(self, frames: np.ndarray) -> dict[str, int | float]:
        """Encode an episode; says in which file and between which times it is."""
        chunk, file = divmod(self._file, CHUNK_FILES)
        if self._encoder is None:
            path = self._root / VIDEO_PATH.format(video_key=self._key, chunk_index=chunk, file_index=file)
            self._encoder = VideoEncoder(path, self._fps, *self._shape[:2])
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
        if self._encoder is not None:
            encoder, self._encoder = self._encoder, None
            encoder.close()

    def abandon(self) -> None:
        if self._encoder is not None:
            self._encoder.abandon()
            self._encoder = None


def data_schema(features: Mapping[str, dict[str, Any]]) -> pa.Schema:
    """The columns of the data files; the metadata lets Hugging Face `datasets` read them without info.json."""
    fields, described = [], {}
    for key, feature in features.items():
        if feature["dtype"] == "image":
            fields.append(pa.field(key, pa.struct([("bytes", pa.binary()), ("path", pa.string())])))
            described[key] = {"_type": "Image"}
        elif feature["dtype"] != "video":
            fields.append(pa.field(key, _vector_type(tuple(feature["shape"]))))
            described[key] = _described_vector(feature["shape"])
    fields += [pa.field(key, pa.type_for_alias(dtype)) for key, dtype in INDEX_DTYPES.items()]
    described |= {key: {"dtype": dtype, "_type": "Value"} for key, dtype in INDEX_DTYPES.items()}
    return pa.schema(fields, {"huggingface": json.dumps({"info": {"features": described}})})


def _described_vector(shape: list[int]) -> dict[str, Any]:
    value = {"dtype": "float32", "_type": "Value"}
    if shape == [1]:
        return value
    if len(shape) == 1:
        return {"feature": value, "length": shape[0], "_type": "List"}
    return {"shape": shape, "dtype": "float32", "_type": f"Array{len(shape)}D"}


def episode_schema(features: Mapping[str, dict[str, Any]]) -> pa.Schema:
    """The columns of `meta/episodes`: where each episode is, and ten statistics of every feature."""
    integers = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    integers += ["dataset_from_index", "dataset_to_index", "meta/episodes/chunk_index", "meta/episodes/file_index"]
    fields = [pa.field(name, pa.int64()) for name in integers]
    fields.insert(1, pa.field("tasks", pa.list_(pa.string())))
    for key, feature in features.items():
        if feature["dtype"] == "video":
            fields += [pa.field(f"videos/{key}/{name}", pa.int64()) for name in ("chunk_index", "file_index")]
            fields += [pa.field(f"videos/{key}/{name}", pa.float64()) for name in ("from_timestamp", "to_timestamp")]
    for key in (*features, *INDEX_DTYPES):
        camera = key in features and features[key]["dtype"] in ("image", "video")
        for name in ("min", "max", "mean", "std", *QUANTILES):
            whole = INDEX_DTYPES.get(key) == "int64" and name in ("min", "max")
            number = pa.list_(pa.int64() if whole else pa.float64())
            fields.append(pa.field(f"stats/{key}/{name}", pa.list_(pa.list_(number)) if camera else number))
        fields.append(pa.field(f"stats/{key}/count", pa.list_(pa.int64())))
    return pa.schema(fields)


def _vector_type(shape: tuple[int, ...]) -> pa.DataType:
    """Shape [1] is a scalar, a vector a fixed-size list, and more dimensions nested lists as `datasets` stores them."""
    if shape == (1,):
        return pa.float32()
    if len(shape) == 1:
        return pa.list_(pa.float32(), shape[0])
    return pa.list_(_vector_type(shape[1:]) if len(shape) > 2 else pa.list_(pa.float32()))


def _arrow_column(array: np.ndarray) -> pa.Array:
    if is_image(array):
        encoded = [{"bytes": _png(image), "path": None} for image in array]
        return pa.array(encoded, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
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


def task_table(tasks: list[str]) -> pa.Table:
    """task_index as the column, the strings as the pandas index, which schema metadata declares."""
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), "task": tasks})
    columns = [
        {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"},
        {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object"},
    ]
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [{"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object"}],
        "columns": [column | {"metadata": None} for column in columns],
        "pandas_version": "2.0.0",
    }
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})
