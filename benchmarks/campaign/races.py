"""Eight threads that share one tokenizer or policy: each must get the bits that one thread gets."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.campaign.children import call
from benchmarks.campaign.trial import Broken, Place
from benchmarks.campaign.workshop import item
from oat.export.loading import load_predictor
from oat.policies import Noise
from oat.tokenizers.loading import load_tokenizer
from tests.policies.small import observe
from tests.tokenizers.fitted import smooth_chunks

THREADS = 8
CALLS = 20
"""Calls of each thread."""
_SECONDS = 120.0


def race(name: str, generator: np.random.Generator, place: Place) -> int:
    """Let threads call the same object with different inputs, and compare with calls one after the other."""
    sort, _, kind = name.partition("-")
    seed = int(generator.integers(2**20))
    if sort == "tokenizer":
        check = partial(_race, item(place, name) / "checkpoint", True, seed)
    else:
        path = item(place, f"policy-{kind}" if sort == "eager" else f"export-{kind}")
        check = partial(_race, path / ("checkpoint" if sort == "eager" else "export"), False, seed)
    ended = call(check, _SECONDS).check()
    if ended.answer:
        raise Broken(f"{ended.answer} of {THREADS * CALLS} calls gave other bits than one thread")
    return THREADS * CALLS


def _race(path: Path, is_tokenizer: bool, seed: int) -> int:
    """Return how many calls differ from those of one thread."""
    compute = _tokenizing(path) if is_tokenizer else _predicting(path)
    seeds = range(seed, seed + CALLS)
    alone = [compute(each) for each in seeds]
    with ThreadPoolExecutor(THREADS) as threads:
        together = list(threads.map(lambda _: [compute(each) for each in seeds], range(THREADS)))
    return sum(one != other for row in together for one, other in zip(alone, row, strict=True))


def _tokenizing(path: Path) -> Callable[[int], str]:
    tokenizer = load_tokenizer(path)

    def compute(seed: int) -> str:
        tokens = tokenizer.encode(smooth_chunks(4, seed))
        return hashlib.sha256(tokens.ids.numpy().tobytes() + tokenizer.decode(tokens).numpy().tobytes()).hexdigest()

    return compute


def _predicting(path: Path) -> Callable[[int], str]:
    policy = load_predictor(path)

    def compute(seed: int) -> str:
        chunk = policy.predict_chunk(observe(2, seed), noise=Noise.of([seed, seed + 1], [0, 1]))
        return hashlib.sha256(chunk.actions.numpy().tobytes()).hexdigest()

    return compute
