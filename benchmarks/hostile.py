"""Generate what a policy server must survive: messages that are not requests, and requests without an answer."""

from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np

from oat.serving.messages import pack

KEY = "observation.state"


def hostile_messages(shape: tuple[int, ...], seed: int = 0) -> Iterator[bytes | str]:
    """Yield bad messages without end, for a policy that sees a state of this shape; every one must be refused."""
    generator = np.random.default_rng(seed)
    fine = pack({KEY: np.zeros(shape, np.float32), "prompt": "push"})
    while True:
        yield from _malformed(generator, fine)
        yield from _wrong_arrays(shape)
        yield from _wrong_requests(shape)


def _malformed(generator: np.random.Generator, fine: bytes) -> list[bytes | str]:
    """Return messages that are not msgpack, or not a map."""
    flipped = bytearray(fine)
    flipped[0] ^= 0x40  # the byte that says "map"
    return [
        b"",
        generator.bytes(int(generator.integers(1, 4000))) + b"\xc1",  # a byte that msgpack never uses
        fine[: int(generator.integers(1, len(fine)))],
        bytes(flipped),
        fine + b"\x00",
        b"\x91" * 60_000,  # lists in lists
        b"\x81\xa1a" * 20_000,  # maps in maps
        b"\xdd\xff\xff\xff\xff",  # four thousand million elements, it says
        b"\xc6\xff\xff\xff\xff",
        b"\x90",
        msgpack.packb({1: 2}),
        '{"observation/state": [0]}',
        "\x00" * 1000,
    ]


def _wrong_arrays(shape: tuple[int, ...]) -> list[bytes]:
    """Return messages whose arrays contradict their descriptions, or whose descriptions fit no array of numbers."""
    data = bytes(4 * int(np.prod(shape)))
    described = [
        ("O", shape, data),
        ("|V4", shape, data),
        ("<f4,<f4", shape, data),
        ("(1000000,1000000)f8", shape, data),
        ("float" * 3000, shape, data),
        ("<f4", [-1, *shape], data),
        ("<f4", [2**62, 2**62], data),
        ("<f4", [1.5], data),
        ("<f4", "4", data),
        ("<f4", shape, data[:-1]),
        ("<f4", shape, "text"),
        ("<c8", shape, data * 2),
        ("<U1", shape, data),
        ("<M8[s]", shape, data * 2),
    ]
    return [
        msgpack.packb({KEY: {b"__ndarray__": True, b"dtype": dtype, b"shape": size, b"data": contents}})
        for dtype, size, contents in described
    ]


def _wrong_requests(shape: tuple[int, ...]) -> list[bytes]:
    """Return well-formed messages that no policy can answer."""
    state = np.zeros(shape, np.float32)
    messages: list[dict[str, Any]] = [
        {},
        {"prompt": "push"},
        {KEY: state, "prompt": 7},
        {KEY: state, "prompt": "never heard of"},
        {KEY: state, "prompt": "push", "noise": "loud"},
        {KEY: state, "prompt": "push", "noise": [1.5, 2]},
        {KEY: state[:-1], "prompt": "push"},
        {KEY: np.zeros((3, *shape), np.float32), "prompt": "push"},
        {KEY: np.zeros((0, *shape), np.float32), "prompt": "push"},
        {KEY: state.astype(np.int64), "prompt": "push"},
        {KEY: np.full(shape, np.nan), "prompt": "push"},
        {KEY: np.full(shape, np.inf), "prompt": "push"},
        {KEY: np.full(shape, 1e300), "prompt": "push"},
        {KEY: 1.0, "prompt": "push"},
        {KEY: "state", "prompt": "push"},
        {KEY: np.float32(1), "prompt": "push"},
    ]
    return [pack(message) for message in messages]
