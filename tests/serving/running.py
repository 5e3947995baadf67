"""A policy server for tests: on a thread of the test's own process, at a free port."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from oat.policies import BasePredictor
from oat.policies.decoding import Decoding
from oat.serving import background
from oat.serving.config import ServeConfig
from oat.serving.server import PolicyServer


def serving(
    policy: BasePredictor, decoding: Decoding | None = None, **options: Any
) -> AbstractContextManager[PolicyServer]:
    """The server, listening until the block ends; then it is stopped as SIGTERM would."""
    config = ServeConfig(**{"policy": Path("policy"), "port": 0, "max_batch": 2, **options})
    return background.serving(policy, config, decoding)
