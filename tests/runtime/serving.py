"""A policy server on a thread of the test's own process, at a free port."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oat.policies import ChunkPredictor
from oat.policies.decoding import Decoding
from oat.runtime.config import ServeConfig
from oat.runtime.server import PolicyServer


@contextmanager
def serving(policy: ChunkPredictor, decoding: Decoding | None = None, **options: Any) -> Iterator[PolicyServer]:
    """The server, listening until the block ends; then it is stopped as SIGTERM would."""
    config = ServeConfig(**{"policy": Path("policy"), "port": 0, "max_batch": 2, **options})
    server, loop = PolicyServer(policy, config, decoding), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
