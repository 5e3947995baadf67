"""Run a policy server on a thread of this process, for programs that need one only for a while."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from oat.policies.decoding import Decoding
from oat.policies.predictor import BasePredictor
from oat.serving.config import ServeConfig
from oat.serving.server import PolicyServer

_PATIENCE = 30.0  # seconds for the server to start and to stop


@contextmanager
def serving(policy: BasePredictor, config: ServeConfig, decoding: Decoding | None = None) -> Iterator[PolicyServer]:
    """Yield a server that listens until the block ends, and then stops as it would after SIGTERM."""
    server = PolicyServer(policy, config, decoding)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)  # it must not keep a failing program alive
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
