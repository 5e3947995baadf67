"""Pack and unpack the messages of the openpi protocol: msgpack maps with arrays as maps of bytes, type and shape.

https://github.com/Physical-Intelligence/openpi. Nothing that arrives can make more than numbers, text, lists and maps.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from oat.errors import InvalidMessage
from oat.io.extras import import_extra

# The keys that a request may hold beside observations.
PROMPT = "prompt"
RESET = "reset"
NOISE = "noise"
NUM_TOKENS = "num_tokens"
PREVIOUS = "previous"

UNDECODABLE = "the policy's tokens do not decode to actions this time"
"""The one refusal after which another attempt may succeed; our client recognises it by this text."""

_NUMBERS = "biuf"  # numpy's kinds: Boolean, signed, unsigned, floating
_LONGEST_NAME = 8  # characters; numpy would parse much longer type descriptions, at some cost


def pack(message: Mapping[str, Any]) -> bytes:
    """Return a message as bytes; arrays must hold numbers."""
    return import_extra("msgpack", "serve").packb(message, default=_pack_array)


def unpack(data: bytes | str) -> dict[str, Any]:
    """Return the map that a message holds; raise `InvalidMessage` for anything else."""
    if isinstance(data, str):
        raise InvalidMessage("messages are binary, got text")
    msgpack = import_extra("msgpack", "serve")
    try:
        message = msgpack.unpackb(data, object_hook=_unpack_array)
    except InvalidMessage:
        raise
    except Exception as error:  # msgpack and numpy raise several unrelated kinds
        raise InvalidMessage(f"a message must be msgpack ({type(error).__name__}: {error})") from error
    if not isinstance(message, dict) or not all(isinstance(key, str) for key in message):
        raise InvalidMessage(f"a message must be a map with text for keys, got {type(message).__name__}")
    return message


def _pack_array(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in _NUMBERS:
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    if isinstance(value, np.generic) and value.dtype.kind in _NUMBERS:
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    raise InvalidMessage(f"{type(value).__name__} cannot be sent")


def _unpack_array(value: dict[Any, Any]) -> Any:
    if b"__ndarray__" in value:
        dtype = _dtype(value)
        shape = value.get(b"shape")
        data = value.get(b"data")
        if not isinstance(data, bytes) or not isinstance(shape, list) or not all(type(n) is int for n in shape):
            raise InvalidMessage("an array needs its data as bytes and its shape as whole numbers")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
            raise InvalidMessage(f"{len(data)} bytes are not an array of {dtype} with shape {tuple(shape)}")
        return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="), copy=False).reshape(shape)
    if b"__npgeneric__" in value:
        return _dtype(value).type(value.get(b"data"))
    return value


def _dtype(value: dict[Any, Any]) -> np.dtype:
    name = str(value.get(b"dtype"))[:_LONGEST_NAME]
    dtype = np.dtype(name)
    if dtype.kind not in _NUMBERS or dtype.itemsize > 8:
        raise InvalidMessage(f"arrays must hold numbers of at most 8 bytes, got {name!r}")
    return dtype
