"""Damage files: as disks, transfers and strangers do."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_HOSTILE: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 2**31, 10**9, 10**18, -(10**18), 10**40, 0.5, -1e308, float("nan"), float("inf"),
    "", "oat", "x" * 10_000, "../../../etc/passwd", "/etc/passwd", "\x00", "{0.__class__}", "{chunk_index:1000000000d}",
    "<script>alert(1)</script>", "float128", "object", "|O", [], {}, [[]], [0] * 1000, [10**9] * 3, [-1, -1], ["a"],
    {"kind": "pickle"}, {"a": {"b": {}}},
)  # fmt: skip


def flip_bits(data: bytearray, generator: np.random.Generator) -> None:
    """Change a few bits anywhere."""
    for _ in range(int(generator.integers(1, 5))):
        data[int(generator.integers(len(data)))] ^= 1 << int(generator.integers(8))


def truncate(data: bytearray, generator: np.random.Generator) -> None:
    """Cut off the end."""
    del data[int(generator.integers(len(data))) :]


def scribble(data: bytearray, generator: np.random.Generator) -> None:
    """Overwrite a stretch by random bytes."""
    start, length = _stretch(data, generator)
    data[start : start + length] = generator.bytes(length)


def blank(data: bytearray, generator: np.random.Generator) -> None:
    """Overwrite a stretch by zeros, as a power failure does."""
    start, length = _stretch(data, generator)
    data[start : start + length] = bytes(length)


def cut_out(data: bytearray, generator: np.random.Generator) -> None:
    """Leave out a stretch."""
    start, length = _stretch(data, generator)
    del data[start : start + length]


def repeat(data: bytearray, generator: np.random.Generator) -> None:
    """Have a stretch twice."""
    start, length = _stretch(data, generator)
    data[start:start] = data[start : start + length]


def lengthen(data: bytearray, generator: np.random.Generator) -> None:
    """Add random bytes at the end."""
    data += generator.bytes(int(generator.integers(1, 200)))


def set_numbers(data: bytearray, generator: np.random.Generator) -> None:
    """Overwrite four or eight bytes by a number that sizes should not have."""
    width = int(generator.choice([4, 8]))
    start = int(generator.integers(max(len(data) - width, 1)))
    numbers = (0, 1, 2**30, 2 ** (8 * width - 1) - 1, 2 ** (8 * width) - 1)
    number = numbers[int(generator.integers(len(numbers)))]
    data[start : start + width] = number.to_bytes(width, "little")


_WAYS: tuple[Callable[[bytearray, np.random.Generator], None], ...] = (
    flip_bits, truncate, scribble, blank, cut_out, repeat, lengthen, set_numbers,
)  # fmt: skip


def _stretch(data: bytearray, generator: np.random.Generator) -> tuple[int, int]:
    start = int(generator.integers(len(data)))
    return start, min(len(data) - start, int(2 ** generator.uniform(0, 10)))


def mangle_bytes(file: Path, generator: np.random.Generator) -> str:
    """Damage the bytes of a file in one of several ways, and return which."""
    data = bytearray(file.read_bytes())
    way = _WAYS[int(generator.integers(len(_WAYS)))]
    if data:
        way(data, generator)
    file.write_bytes(data)
    return f"{way.__name__} {file.name}"


def mangle_json(value: Any, generator: np.random.Generator) -> str:
    """Replace, remove or rename one value of a JSON document in place, and return which."""
    places = list(_places(value))
    if not places:
        return "nothing"
    holder, key = places[int(generator.integers(len(places)))]
    way = int(generator.integers(4))
    if way == 0:
        del holder[key]
        return f"without {key}"
    if way == 1 and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
        return f"{key} renamed"
    holder[key] = _HOSTILE[int(generator.integers(len(_HOSTILE)))]
    return f"{key} = {holder[key]!r:.60}"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every dictionary or list in a document with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def edit_json(file: Path, generator: np.random.Generator) -> str:
    """Change one value of a JSON file, and return which."""
    value = json.loads(file.read_text("utf-8"))
    told = mangle_json(value, generator)
    file.write_text(json.dumps(value), "utf-8")
    return f"{file.name}: {told}"
