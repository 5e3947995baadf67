"""What table-latency measures: milliseconds per chunk of every method, for the shapes of the paper's four benchmarks.

They depend on sizes and not on weights, so the models are untrained. How many tokens FAST takes for a chunk does depend
on data: on the study's demonstrations for the shape of its own benchmark, else on made-up smooth ones.
"""

import json
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import STATE, Episodes, open_dataset
from oat.experiments.paper import numbers as paper
from oat.experiments.study.methods import COMPARED, OAT, Method
from oat.experiments.study.runs import commit
from oat.experiments.study.study import Study
from oat.export.export import write_graphs
from oat.export.latency import time_calls
from oat.export.loading import load_runtime
from oat.io.atomic import staged_file
from oat.policies import AutoregressivePolicy, ChunkPredictor, DiffusionPolicy, Policy, TokenDecoding
from oat.policies.context import ContextConfig
from oat.sims import find_simulator
from oat.sims.config import SimulatorName
from oat.tokenizers import TOKENIZERS, ActionTokenizer
from oat.tokenizers.measures import draw_chunks
from oat.tokenizers.space import ActionSpace
from oat.training.policies import PRESETS

TIMINGS_FILE = "latency.json"
_CHUNKS = 2048  # whose tokens FAST's mean is taken over
_BLOCK = 2  # chunks of one method in a row: with many methods, each gets its share of what else the machine does
_ONNX = " in ONNX Runtime"
_CONTEXT = ContextConfig(vectors=(STATE,), vector_dims=(39,), tasks=("any",))


@dataclass(frozen=True)
class Timing:
    """A method at a number of tokens."""

    tokens: float | None
    """Per chunk; None where there are none."""
    ms: tuple[float, ...]
    onnx_ms: tuple[float, ...]
    """Nothing where it was not exported."""


@dataclass(frozen=True)
class Shape:
    """All methods in one benchmark's shape, and what they were timed with."""

    source: str
    """Of the chunks that FAST was fitted to."""
    commit: str
    machine: str
    torch: str
    timings: dict[str, Timing]


@dataclass(frozen=True)
class Timings:
    """What was measured."""

    preset: str
    shapes: dict[SimulatorName, Shape]


def read_timings(study: Study) -> Timings | None:
    """What was kept."""
    file = study.folder / TIMINGS_FILE
    if not file.exists():
        return None
    kept = json.loads(file.read_text("utf-8"))
    preset, shapes = kept.pop("preset"), kept.pop("shapes")
    return Timings(preset, {sim: _shape(**kept | shape) for sim, shape in shapes.items()})


def _shape(timings: Mapping[str, Mapping[str, Any]], **how: str) -> Shape:
    """One of a file; older files say once, for all shapes, what they were timed with."""
    return Shape(**how, timings={label: _timing(**timing) for label, timing in timings.items()})


def _timing(tokens: float | None, ms: Sequence[float], onnx_ms: Sequence[float]) -> Timing:
    """Lists, as JSON has them, become tuples."""
    return Timing(tokens, tuple(ms), tuple(onnx_ms))


def measure(study: Study) -> None:
    """Time everything in this process, one shape after the other, and keep each; what is kept is not measured again."""
    torch.set_num_threads(1)
    smoke = study.scale.name == "smoke"
    sims: Sequence[SimulatorName] = ("metaworld",) if smoke else tuple(paper.LATENCY)
    preset, kept = "tiny" if smoke else "paper", read_timings(study)
    shapes = {} if kept is None else dict(kept.shapes)
    for sim in sims:
        if sim in shapes:
            continue
        Console(stderr=True).print(f"timing every method in {sim}'s shape", highlight=False)
        episodes, source = _demonstrations(study, sim)
        times = _time_all(episodes, preset, study.scale.timings, exported=not smoke)
        shapes[sim] = Shape(source, commit(), platform.machine(), torch.__version__, times)
        with staged_file(study.folder / TIMINGS_FILE) as staging:
            staging.write_text(json.dumps(asdict(Timings(preset, shapes)), indent=1), "utf-8")


def _demonstrations(study: Study, sim: SimulatorName) -> tuple[Episodes, str]:
    """Episodes in a benchmark's shape, and what they are."""
    if sim == study.sim and study.data.exists():
        return open_dataset(study.data), "the study's demonstrations"
    return smooth_episodes(len(find_simulator(sim).action_names)), "made-up smooth actions"


def smooth_episodes(dim: int, episodes: int = 40, steps: int = 120) -> Episodes:
    """Sums of a few slow sine waves; the last dimension is a gripper that opens and closes."""
    random, time, parts = np.random.default_rng(0), np.arange(steps)[:, None], []
    for _ in range(episodes):
        waves = random.uniform(0.2, 3, (4, 1, dim)) * time / steps + random.uniform(0, 1, (4, 1, dim))
        curve = (random.normal(size=(4, 1, dim)) * np.sin(2 * np.pi * waves)).sum(0)
        curve[:, -1] = np.sign(curve[:, -1])
        parts.append(curve.astype(np.float32))
    return Episodes.from_arrays(np.concatenate(parts), [steps] * episodes)


def _time_all(episodes: Episodes, preset: str, repeats: int, exported: bool) -> dict[str, Timing]:
    """Every method on the same observation, taking turns."""
    torch.manual_seed(0)
    windows = Windows(episodes, WindowConfig(OAT.action_horizon, 1))
    tokens: dict[str, float | None] = {}
    calls: dict[str, Callable[[], object]] = {}
    for method in COMPARED:
        policy, usual = untrained(method, windows, preset)
        runners: dict[str, ChunkPredictor] = {"": policy}
        if exported and method.tokenizer != "fast":  # whose length is not known beforehand
            runners[_ONNX] = _export(policy)
        for prefix in method.prefixes or (None,):
            label, observation = method.label(prefix), policy.random_observation(1)
            decoding = policy.default_decoding if prefix is None else TokenDecoding(prefix)
            tokens[label] = usual if prefix is None else prefix
            calls |= {
                label + kind: partial(each.predict_chunk, observation, decoding) for kind, each in runners.items()
            }
    times = {name: tuple(each.tolist()) for name, each in time_calls(calls, repeats, _BLOCK).items()}
    return {label: Timing(count, times[label], times.get(label + _ONNX, ())) for label, count in tokens.items()}


def untrained(method: Method, windows: Windows, preset: str) -> tuple[Policy, float | None]:
    """A policy with random weights, and its tokens per chunk."""
    size, space = PRESETS[preset].model, ActionSpace(windows.config.action_horizon, windows.episodes.action_dim)
    if method.tokenizer is None:
        return DiffusionPolicy(_CONTEXT, space, size).eval(), None
    kind = TOKENIZERS[method.tokenizer]
    batch = windows[np.arange(len(windows))]
    steps = 0 if kind.config_class.trained() else None  # speed does not depend on the weights
    tokenizer = kind.fit(batch.actions, batch.valid_mask, preset=preset, steps=steps, validation=0.0, progress=False)
    tokens = _mean_tokens(tokenizer, windows)
    policy = AutoregressivePolicy(_CONTEXT, tokenizer, size, None if tokenizer.total else round(tokens))
    if policy.variable_length:  # with a logit of 0 its end is never among the likely tokens
        torch.nn.init.zeros_(policy.embedding.weight.data[policy.eos])
    return policy.eval(), tokens


def _mean_tokens(tokenizer: ActionTokenizer, windows: Windows) -> float:
    if tokenizer.total:
        return float(tokenizer.max_tokens)
    return float(draw_chunks(windows, tokenizer, _CHUNKS).encode(tokenizer).lengths.double().mean())


def _export(policy: Policy) -> ChunkPredictor:
    with tempfile.TemporaryDirectory() as folder:
        write_graphs(policy, Path(folder))
        return load_runtime(folder, threads=1)
