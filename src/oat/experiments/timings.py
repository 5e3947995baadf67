"""Measure milliseconds per chunk of every method, for the shapes of the paper's four benchmarks (table-latency).

They depend on sizes and not on weights, so the models are untrained. How many tokens FAST takes for a chunk does depend
on data: on the study's demonstrations for the shape of its own benchmark, else on made-up smooth ones.
"""

import platform
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import STATE, Episodes, open_dataset
from oat.experiments.latency_records import LatencyRecord, ShapeTimings, Timing, read_timings, write_timings
from oat.experiments.paper import numbers as paper
from oat.experiments.study.methods import COMPARED, OAT, Method
from oat.experiments.study.runs import commit
from oat.experiments.study.study import Study
from oat.export.export import write_graphs
from oat.export.latency import time_calls
from oat.export.loading import load_runtime
from oat.policies import POLICIES, AutoregressivePolicy, BasePredictor, Policy, TokenDecoding
from oat.policies.context import ContextConfig
from oat.sims import find_simulator
from oat.sims.config import SimulatorName
from oat.tokenizers import TOKENIZERS, BaseTokenizer
from oat.tokenizers.measures import draw_chunks
from oat.tokenizers.space import ActionSpace
from oat.training.config import policy_preset_of

_CHUNKS = 2048  # over whose tokens FAST's mean is taken
_BLOCK = 2  # chunks of one method in a row: with many methods, each gets its share of what else the machine does
_ONNX = " in ONNX Runtime"
# A state as long as MetaWorld's, for all benchmarks: here, their shapes differ in the actions only.
_CONTEXT = ContextConfig(vectors=(STATE,), vector_dims=(39,), tasks=("any",))


def measure(study: Study) -> None:
    """Time everything in this process, one shape after the other, and keep each; what is kept is not timed again."""
    torch.set_num_threads(1)  # the table compares methods on one thread, and says so
    smoke = study.scale.name == "smoke"
    sims: Sequence[SimulatorName] = ("metaworld",) if smoke else tuple(paper.LATENCY)
    preset = "tiny" if smoke else "paper"
    kept = read_timings(study)
    shapes = {} if kept is None else dict(kept.shapes)
    for sim in sims:
        if sim in shapes:
            continue
        Console(stderr=True).print(f"timing every method in {sim}'s shape", highlight=False)
        episodes, source = _demonstrations(study, sim)
        times = _time_all(episodes, preset, study.scale.timings, exported=not smoke)
        shapes[sim] = ShapeTimings(source, commit(), platform.machine(), torch.__version__, times)
        # After every shape, because one takes minutes: an interruption costs no more than the shape it falls in.
        write_timings(study, LatencyRecord(preset, shapes))


def _demonstrations(study: Study, sim: SimulatorName) -> tuple[Episodes, str]:
    """Return episodes in a benchmark's shape, and a word on where they are from."""
    if sim == study.sim and study.data.exists():
        return open_dataset(study.data), "the study's demonstrations"
    return smooth_episodes(len(find_simulator(sim).action_names)), "made-up smooth actions"


def smooth_episodes(dim: int, episodes: int = 40, steps: int = 120) -> Episodes:
    """Make up episodes of a few slow sine waves; the last dimension is a gripper that opens and closes."""
    random = np.random.default_rng(0)
    time = np.arange(steps)[:, None]
    parts = []
    for _ in range(episodes):
        waves = random.uniform(0.2, 3, (4, 1, dim)) * time / steps + random.uniform(0, 1, (4, 1, dim))
        curve = (random.normal(size=(4, 1, dim)) * np.sin(2 * np.pi * waves)).sum(0)
        curve[:, -1] = np.sign(curve[:, -1])
        parts.append(curve.astype(np.float32))
    return Episodes.from_arrays(np.concatenate(parts), [steps for _ in parts])


def _time_all(episodes: Episodes, preset: str, repeats: int, exported: bool) -> dict[str, Timing]:
    """Time every method, all taking turns so that whatever else the machine does falls on all of them."""
    torch.manual_seed(0)
    windows = Windows(episodes, WindowConfig(OAT.action_horizon, 1))
    tokens: dict[str, float | None] = {}
    calls: dict[str, Callable[[], object]] = {}
    for method in COMPARED:
        policy, usual = untrained(method, windows, preset)
        runners: dict[str, BasePredictor] = {"": policy}
        # How many tokens FAST takes for a chunk is not known beforehand, so that it is not exported.
        if exported and method.tokenizer != "fast":
            runners[_ONNX] = _export(policy)
        for prefix in method.prefixes or (None,):
            label = method.label(prefix)
            observation = policy.random_observation(1)
            decoding = policy.default_decoding if prefix is None else TokenDecoding(prefix)
            tokens[label] = usual if prefix is None else prefix
            calls |= {
                label + kind: partial(each.predict_chunk, observation, decoding) for kind, each in runners.items()
            }
    times = {name: tuple(each.tolist()) for name, each in time_calls(calls, repeats, _BLOCK).items()}
    return {label: Timing(count, times[label], times.get(label + _ONNX, ())) for label, count in tokens.items()}


def untrained(method: Method, windows: Windows, preset: str) -> tuple[Policy, float | None]:
    """Return a policy with random weights and its tokens per chunk, which are None where it generates none."""
    size = policy_preset_of(method.policy, preset).model
    space = ActionSpace(windows.config.action_horizon, windows.episodes.action_dim)
    if method.tokenizer is None:
        return POLICIES[method.policy](_CONTEXT, space, size).eval(), None
    kind = TOKENIZERS[method.tokenizer]
    batch = windows[np.arange(len(windows))]
    steps = 0 if kind.config_class.trained() else None  # speed does not depend on the weights
    tokenizer = kind.fit(batch.actions, batch.valid_mask, preset=preset, steps=steps, validation=0.0, progress=False)
    tokens = _mean_tokens(tokenizer, windows)
    policy = AutoregressivePolicy(_CONTEXT, tokenizer, size, None if tokenizer.total else round(tokens))
    # An untrained policy would end at random: with a logit of 0 the end is never among the likely tokens.
    if policy.variable_length:
        torch.nn.init.zeros_(policy.embedding.weight.data[policy.eos])
    return policy.eval(), tokens


def _mean_tokens(tokenizer: BaseTokenizer, windows: Windows) -> float:
    """Return the mean number of tokens per chunk, measured where it depends on the chunk."""
    if tokenizer.total:
        return float(tokenizer.max_tokens)
    return float(draw_chunks(windows, tokenizer, _CHUNKS).encode(tokenizer).lengths.double().mean())


def _export(policy: Policy) -> BasePredictor:
    """Return the policy as ONNX Runtime runs it, on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        write_graphs(policy, Path(folder))
        return load_runtime(folder, threads=1)
