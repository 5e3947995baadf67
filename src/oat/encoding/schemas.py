"""The columns of token and action files, with the metadata by which Hugging Face `datasets` reads them."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int64

from oat.tokenizers.tokens import Tokens

KEYS = ("episode_index", "frame_index", "index", "task_index")
"""Where a chunk begins, by the data set's own numbers; `index` counts the frames of the whole set."""
IDENTITY = b"oat"
"""The key of the schema's metadata that says what a file was made of."""
_NUMBER = {"dtype": "float32", "_type": "Value"}


def token_schema(prefixes: int, identity: Mapping[str, Any]) -> pa.Schema:
    """Return the columns of a token file, with as many errors for each chunk as prefixes were decoded."""
    fields = {name: pa.int64() for name in KEYS}
    described: dict[str, Any] = {name: {"dtype": "int64", "_type": "Value"} for name in KEYS}
    fields |= {"tokens": pa.list_(pa.int32()), "length": pa.int32(), "clipped": pa.float32()}
    described["tokens"] = {"feature": {"dtype": "int32", "_type": "Value"}, "_type": "List"}
    described |= {"length": {"dtype": "int32", "_type": "Value"}, "clipped": _NUMBER}
    if prefixes:
        fields["error"] = pa.list_(pa.float32(), prefixes)
        described["error"] = {"feature": _NUMBER, "length": prefixes, "_type": "List"}
    return _schema(fields, described, identity)


def action_schema(num_actions: int, dim: int, identity: Mapping[str, Any]) -> pa.Schema:
    """Return the columns of a file of decoded chunks."""
    fields = {name: pa.int64() for name in KEYS}
    described: dict[str, Any] = {name: {"dtype": "int64", "_type": "Value"} for name in KEYS}
    fields["action"] = pa.list_(pa.list_(pa.float32()))
    described["action"] = {"shape": [num_actions, dim], "dtype": "float32", "_type": "Array2D"}
    return _schema(fields, described, identity)


def _schema(fields: Mapping[str, pa.DataType], described: Mapping[str, Any], identity: Mapping[str, Any]) -> pa.Schema:
    metadata = {
        b"huggingface": json.dumps({"info": {"features": described}}).encode(),
        IDENTITY: json.dumps(identity, sort_keys=True).encode(),
    }
    return pa.schema(list(fields.items()), metadata)


def token_columns(tokens: Tokens) -> dict[str, pa.Array]:
    """Return the columns that hold chunks' tokens."""
    lengths = tokens.lengths.cpu().numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = tokens.ids[tokens.real].cpu().numpy().astype(np.int32)
    assert tokens.clipped is not None, "encoding tells what it clipped"
    return {
        "tokens": pa.ListArray.from_arrays(pa.array(offsets), pa.array(values)),
        "length": pa.array(lengths.astype(np.int32)),
        "clipped": pa.array(tokens.clipped.cpu().numpy().astype(np.float32)),
    }


def fixed_lists(rows: Float[np.ndarray, "rows width"]) -> pa.Array:
    """Return rows of equal width as one column."""
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1).astype(np.float32)), rows.shape[1])


def nested_lists(chunks: Float[np.ndarray, "chunks time dim"]) -> pa.Array:
    """Return chunks as one column of lists of lists."""
    count, time, dim = chunks.shape
    numbers = pa.array(chunks.reshape(-1).astype(np.float32))
    actions = pa.ListArray.from_arrays(pa.array(_bounds(count * time, dim)), numbers)
    return pa.ListArray.from_arrays(pa.array(_bounds(count, time)), actions)


def _bounds(count: int, width: int) -> np.ndarray:
    return np.arange(0, count * width + 1, width, dtype=np.int32)


def key_columns(keys: Mapping[str, Int64[np.ndarray, " chunks"]]) -> dict[str, pa.Array]:
    """Return the columns that say where each chunk begins."""
    return {name: pa.array(keys[name]) for name in KEYS}
