"""The numeric columns of a LeRobotDataset's parquet files, as contiguous arrays."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oat.data.columns import load_column
from oat.data.lerobot.metadata import episode_files, explain_read_errors
from oat.errors import MissingKey

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


@dataclass(frozen=True)
class DataColumns:
    """Give access to the numeric columns of all data files, which together hold one row per frame."""

    files: tuple[Path, ...]
    frames: int
    features: dict[str, Any]

    def shape(self, key: str) -> tuple[int, ...]:
        """Return the shape of one frame's value, (1,) for a scalar."""
        shape = self.features[key]["shape"]
        if not isinstance(shape, list) or not all(type(side) is int and side > 0 for side in shape):
            raise ValueError(f"the shape of {key!r} must be a list of numbers above 0, got {shape!r:.60}")
        return tuple(shape) or (1,)

    def load(self, key: str) -> np.ndarray:
        """Return a whole column as one float32 array, memory-mapped when large."""
        return load_column(key, (self.frames, *self.shape(key)), lambda: self.blocks(key), self.files)

    def blocks(self, key: str) -> Iterator[np.ndarray]:
        """Yield a column in blocks of rows, file after file."""
        for file in self.files:
            with explain_read_errors(file), pq.ParquetFile(file, page_checksum_verification=True) as parquet:
                if key not in parquet.schema_arrow.names:
                    raise MissingKey(f"{file}: no column {key!r}; it has {parquet.schema_arrow.names}")
                for batch in parquet.iter_batches(65536, columns=[key]):
                    yield _flat_values(batch.column(0), self.shape(key))


def data_columns(root: Path, info: dict[str, Any], episodes: pa.Table) -> DataColumns:
    """Return the columns of the data files that the table of episodes names, in that order."""
    files = episode_files(root, info["data_path"], episodes, "data")
    return DataColumns(tuple(dict.fromkeys(files)), int(info["total_frames"]), info["features"])


def _flat_values(array: pa.Array, shape: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of a column of scalars, lists or nested lists as (rows, *shape)."""
    rows = len(array)
    while any(is_list(array.type) for is_list in _LISTS):
        array = array.flatten()
    # Flattening drops empty lists without a word, so rows of another length show only in the total.
    if array.null_count or len(array) != rows * math.prod(shape):
        raise pa.ArrowInvalid(f"{len(array) - array.null_count} numbers in {rows} rows of shape {shape}")
    return array.to_numpy(zero_copy_only=False).reshape(rows, *shape)
