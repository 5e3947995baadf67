"""The parquet schemas of a LeRobotDataset v3.0, with the metadata by which `datasets` and pandas read the files."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from oat.data.lerobot.metadata import INDEX_FEATURES
from oat.data.statistics import QUANTILES

INDEX_DTYPES = dict.fromkeys(INDEX_FEATURES, "int64") | {"timestamp": "float32"}
IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def data_schema(features: Mapping[str, dict[str, Any]]) -> pa.Schema:
    """Return the columns of the data files; the metadata lets Hugging Face `datasets` read them without info.json."""
    fields = []
    described = {}
    for key, feature in features.items():
        if feature["dtype"] == "image":
            fields.append(pa.field(key, IMAGE_TYPE))
            described[key] = {"_type": "Image"}
        elif feature["dtype"] != "video":
            fields.append(pa.field(key, _vector_type(tuple(feature["shape"]))))
            described[key] = _described_vector(feature["shape"])
    # Videos have no column: their frames are found by time.
    fields += [pa.field(key, pa.type_for_alias(dtype)) for key, dtype in INDEX_DTYPES.items()]
    described |= {key: {"dtype": dtype, "_type": "Value"} for key, dtype in INDEX_DTYPES.items()}
    return pa.schema(fields, {"huggingface": json.dumps({"info": {"features": described}})})


def _vector_type(shape: tuple[int, ...]) -> pa.DataType:
    """Return float32 for shape (1,), a fixed-size list for a vector, nested lists for more dimensions.

    `datasets` stores them in this way, and LeRobot reads the files through it.
    """
    if shape == (1,):
        return pa.float32()
    if len(shape) == 1:
        return pa.list_(pa.float32(), shape[0])
    return pa.list_(_vector_type(shape[1:]) if len(shape) > 2 else pa.list_(pa.float32()))


def _described_vector(shape: list[int]) -> dict[str, Any]:
    """Return the same type in the words of `datasets`."""
    value = {"dtype": "float32", "_type": "Value"}
    if shape == [1]:
        return value
    if len(shape) == 1:
        return {"feature": value, "length": shape[0], "_type": "List"}
    return {"shape": shape, "dtype": "float32", "_type": f"Array{len(shape)}D"}


def episode_schema(features: Mapping[str, dict[str, Any]]) -> pa.Schema:
    """Return the columns of `meta/episodes`: where each episode is, and ten statistics of every feature."""
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
            # A camera's statistics are shaped (3, 1, 1), to be broadcast over its images.
            fields.append(pa.field(f"stats/{key}/{name}", pa.list_(pa.list_(number)) if camera else number))
        fields.append(pa.field(f"stats/{key}/count", pa.list_(pa.int64())))
    return pa.schema(fields)


def task_table(tasks: list[str]) -> pa.Table:
    """Return the table of tasks: task_index as the column, the strings as the pandas index that metadata declares."""
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
