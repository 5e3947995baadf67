"""A policy server on a thread of this process, for who needs one only for a while."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from oat.policies.decoding import Decoding
from oat.policies.predictor import ChunkPredictor
from oat.serving.config import ServeConfig
from oat.serving.server import PolicyServer

_PATIENCE = 30.0  # seconds for the server to start and to stop


@contextmanager
def serving(policy: ChunkPredictor, config: ServeConfig, decoding: Decoding | None = None) -> Iterator[PolicyServer]:
    """The server, listening until the block ends; then it is stopped as SIGTERM would."""
    server, loop = PolicyServer(policy, config, decoding), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(_PATIENCE)
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(_PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_PATIENCE)
        loop.close()
