"""Behind `oat bench latency`: how long a chunk takes, from observation to actions, in each engine."""

import gc
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from oat.errors import InvalidOption
from oat.export.config import EngineName, LatencyConfig
from oat.export.export import write_graphs
from oat.export.loading import compile_policy, load_predictor, load_runtime
from oat.policies import BasePredictor, Decoding, DecodingOptions, Policy
from oat.tables.terminal import make_rich_table

Name = TypeVar("Name", bound=str)

_BLOCK = 10  # chunks of one engine in a row: the caches are then its own, and load is shared by all


def measure_latency(config: LatencyConfig) -> None:
    """Time every engine with every K and batch size, and print them side by side."""
    predictors = _predictors(config)
    table = make_rich_table("milliseconds per chunk: p50 / p95 / p99", "decoding", "batch", *predictors)
    for rows in config.batch:
        for decoding in _decodings(config, next(iter(predictors.values()))):
            _add_row(table, predictors, decoding, rows, config.repeats)
    Console().print(table)


def _add_row(
    table: Table, predictors: Mapping[EngineName, BasePredictor], decoding: Decoding, rows: int, repeats: int
) -> None:
    calls = {
        name: partial(each.predict_chunk, each.random_observation(rows), decoding) for name, each in predictors.items()
    }
    times = time_calls(calls, repeats)
    table.add_row(decoding.name, str(rows), *(_quantiles(each) for each in times.values()))


def time_calls(calls: Mapping[Name, Callable[[], object]], repeats: int, block: int = _BLOCK) -> dict[Name, np.ndarray]:
    """Return the milliseconds of every call; they take turns, so that what else the machine does disturbs all alike."""
    times: dict[Name, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    gc.collect()
    while min(map(len, times.values())) < repeats:
        for name, call in calls.items():
            for _ in range(block):
                begin = time.perf_counter()
                call()
                times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: np.array(each[:repeats]) for name, each in times.items()}


def _quantiles(times: np.ndarray) -> str:
    return " / ".join(f"{value:.2f}" for value in np.quantile(times, (0.5, 0.95, 0.99)))


def _predictors(config: LatencyConfig) -> dict[EngineName, BasePredictor]:
    policy = load_predictor(config.policy, config.threads)
    if not isinstance(policy, Policy):
        return {"onnx": policy}
    predictors: dict[EngineName, BasePredictor] = {}
    if "eager" in config.engines:
        predictors["eager"] = policy
    if "compiled" in config.engines:
        predictors["compiled"] = _compiled(policy)
    if "onnx" in config.engines:
        with tempfile.TemporaryDirectory() as folder:
            write_graphs(policy, Path(folder))
            predictors["onnx"] = load_runtime(folder, config.threads)
    return predictors


def _compiled(policy: Policy) -> BasePredictor:
    compiled = compile_policy(policy)
    try:
        compiled.predict_chunk(compiled.random_observation(1))
    except Exception as error:
        if type(error).__module__.startswith("torch."):
            raise InvalidOption(
                f"PyTorch's compiler does not work here ({error}); leave it out: --engines eager onnx"
            ) from error
        raise
    return compiled


def _decodings(config: LatencyConfig, policy: BasePredictor) -> list[Decoding]:
    """Return those decodings with the prefix lengths that are asked for which the policy can do."""
    asked = DecodingOptions(config.num_tokens if policy.anytime else (None,), num_actions=config.num_actions)
    return policy.decodings(asked.only(policy.options))
