"""What policies cost: a training step with cached tokens, one chunk at batch 1. Ratios come from one run.

OMP_NUM_THREADS=1 python benchmarks/policies.py

Paper-size policies over a 39-D state; weights are random, which changes no timing.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

import time
from functools import partial

import numpy as np
import torch
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import STATE, Episodes
from oat.data.normalize import Normalizer, action_statistics
from oat.export.latency import time_calls
from oat.interfaces import Observation
from oat.policies import AutoregressivePolicy, TokenDecoding
from oat.policies.context import describe_context
from oat.tokenizers import OATTokenizer
from oat.tokenizers.space import ActionSpace
from oat.training.policies import PolicyTraining
from oat.training.token_cache import TokenCache

HORIZON, DIM, STATE_DIM, BATCH = 32, 7, 39, 64
REFERENCE_MS = 27 + 8  # the authors' code on a machine of this kind: 8 tokens, then detokenizing (best of its range)
Row = tuple[str, str, str]


def main(repeats: int = 200) -> None:
    """Measure training and generation.

    Args:
        repeats: Calls of everything that is measured.
    """
    torch.set_num_threads(1)
    policy, task = make_policy()
    table = Table("measure", "value", "required", box=box.MARKDOWN)
    for row in (
        *measure_generation(policy, repeats),
        measure_samples(policy, repeats),
        measure_training(policy, task, max(5, repeats // 20)),
    ):
        table.add_row(*row)
    Console(width=120).print(table)


def make_policy() -> tuple[AutoregressivePolicy, PolicyTraining]:
    generator = np.random.default_rng(0)
    actions = np.cumsum(generator.normal(size=(2000, DIM)), axis=0).astype(np.float32)
    states = generator.normal(size=(2000, STATE_DIM)).astype(np.float32)
    episodes = Episodes.from_arrays(actions, [100] * 20, observations={STATE: states})
    windows = Windows(episodes, WindowConfig(HORIZON, 2, (STATE,)))
    tokenizer = OATTokenizer(ActionSpace(HORIZON, DIM))
    tokenizer.normalizer = Normalizer.from_statistics(action_statistics(windows))
    policy = AutoregressivePolicy(describe_context(episodes, (STATE,)), tokenizer).eval()
    table = generator.integers(0, tokenizer.vocab_size, (len(windows), tokenizer.max_tokens + 1)).astype(np.int32)
    table[:, -1] = tokenizer.max_tokens
    return policy, PolicyTraining(windows, windows, 0.2, policy, TokenCache(table))


def measure_generation(policy: AutoregressivePolicy, repeats: int) -> list[Row]:
    one, many = _observation(1), _observation(16)
    times = time_calls({str(k): partial(policy.predict_chunk, one, TokenDecoding(k)) for k in (8, 1)}, repeats)
    extra = np.min([_between_tokens(policy, one) for _ in range(repeats)], axis=0)
    tokens = time_calls({"one": partial(_tokens, policy, one), "many": partial(_tokens, policy, many)}, repeats)
    single, batch = tokens["one"].min(), tokens["many"].min()
    return [
        (
            "one chunk, K = 8, fastest / median, ms",
            _fastest_and_median(times["8"]),
            f"≤ {REFERENCE_MS / 2:.1f}, half the reference's {REFERENCE_MS}",
        ),
        ("one chunk, K = 1, fastest / median, ms", _fastest_and_median(times["1"]), ""),
        ("each extra token, fastest, ms: K = 2 … 8", " ".join(f"{value:.2f}" for value in extra), "constant"),
        ("8 tokens for 16 rows / for 1, fastest", f"{batch:.1f} / {single:.1f} = {batch / single:.2f}", "≤ 4"),
    ]


def measure_samples(policy: AutoregressivePolicy, repeats: int) -> Row:
    """Time several samples of one observation, of which the medoid is chosen, taking turns."""
    one = _observation(1)
    fastest = dict.fromkeys((1, 4, 8, 16), np.inf)
    for _ in range(max(5, repeats // 10)):
        for samples, before in fastest.items():
            begin = time.process_time()  # the processor's, so that other load on the machine counts less
            policy.predict_chunk(one, TokenDecoding(8, samples=samples, executed=16))
            fastest[samples] = min(before, 1e3 * (time.process_time() - begin))
    told = ", ".join(f"{samples}: {ms:.1f} ({ms / fastest[1]:.2f}×)" for samples, ms in fastest.items())
    return ("one chunk, the medoid of N samples, K = 8, fastest, processor's ms", told, "")


def measure_training(policy: AutoregressivePolicy, task: PolicyTraining, repeats: int) -> Row:
    policy.train()
    batch = task.windows[np.arange(BATCH)]
    lesson = task.lesson(batch, task.taught)

    def whole() -> None:
        loss, _ = task.loss(policy, task.windows[np.arange(BATCH)], torch.Generator())
        torch.autograd.backward(loss)

    def alone() -> None:
        nll, _, counts, *_ = policy(lesson.values, lesson.tasks, lesson.tokens)
        torch.autograd.backward(nll.sum() / counts.sum())

    times = time_calls({"whole": whole, "alone": alone}, repeats)
    ratio = times["whole"].min() / times["alone"].min()
    return ("training step / its transformer alone", f"{ratio:.2f}", "≤ 1.1")


def _tokens(policy: AutoregressivePolicy, observation: Observation) -> list[float]:
    """Generate 8 tokens, and return the seconds at which they were there."""
    seconds = []
    with torch.no_grad():
        next_token = policy.start_tokens(*policy.context.read(observation), TokenDecoding(greedy=True), None).next_token
        for place in range(policy.longest):
            next_token(place)
            seconds.append(time.perf_counter())
    return seconds


def _between_tokens(policy: AutoregressivePolicy, observation: Observation) -> np.ndarray:
    """Milliseconds that each token after the first takes."""
    return 1e3 * np.diff(_tokens(policy, observation))


def _observation(rows: int) -> Observation:
    state = np.random.default_rng(1).normal(size=(rows, 2, STATE_DIM)).astype(np.float32)
    return Observation({STATE: state}, ("",) * rows)


def _fastest_and_median(times: np.ndarray) -> str:
    return f"{times.min():.1f} / {np.median(times):.1f}"


if __name__ == "__main__":
    tyro.cli(main)
