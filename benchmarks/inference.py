"""What inference costs: chunks in ONNX Runtime against their floor, the server's overhead, deadlines under load.

OMP_NUM_THREADS=1 python benchmarks/inference.py latency | server | deadline

A paper-size policy over a 39-D state, one thread, batch 1, from the observation to the first 16 actions; weights are
random, which changes no timing. Limits come from the authors' code on a machine of this kind: 8 tokens 27–34 ms and
detokenizing 8–9 ms, one token 4.4–6.6 ms and 9 ms.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[1])  # tokenizers.py beside this would stand for the library of that name

import multiprocessing
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice

import numpy as np
import torch
import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from benchmarks.hostile import hostile_messages
from benchmarks.plain_graphs import plain_runtime
from benchmarks.policies import STATE_DIM, make_policy
from oat.data.episodes import STATE
from oat.export.config import Precision
from oat.export.export import compare, write_graphs
from oat.export.latency import time_calls
from oat.export.loading import load_runtime
from oat.interfaces import Observation
from oat.policies import AutoregressivePolicy, BasePredictor, Chunk, Noise, Policy, TokenDecoding
from oat.policies.stopping import StoppingRule
from oat.serving.client import PolicyClient
from oat.tokenizers.decoder import SinglePassDecoder

ACTIONS = 16
LIMIT_MS = {8: (27 + 8) / 4, 1: (4.4 + 9) / 3}
Row = tuple[str, str, str]


def latency(repeats: int = 500) -> None:
    """Time K = 8 and K = 1 beside what the weights' transport and the arithmetic cost at least.

    Args:
        repeats: Chunks per number.
    """
    policy, runtime, _ = prepare()
    small = load_runtime(_export(policy, "int8"))
    plain = plain_runtime(policy)
    observation = policy.random_observation(1)
    rows: list[Row] = []
    for tokens, limit in LIMIT_MS.items():
        decoding = TokenDecoding(tokens, num_actions=ACTIONS)
        engines = {"ONNX": runtime, "ONNX, weights not folded": plain, "ONNX int8": small, "PyTorch eager": policy}
        calls = {name: partial(each.predict_chunk, observation, decoding) for name, each in engines.items()}
        calls["ONNX, loop in Python"] = partial(_step_by_step, runtime, observation, decoding)
        least, times = floor_ms(policy, tokens), time_calls(calls, repeats)
        for name, each in times.items():
            value = f"{each.min():.2f} / {np.median(each):.2f} / {each.min() / least:.2f}"
            required = f"≤ {limit:.2f}" if name == "ONNX" else ""
            rows.append((f"K = {tokens}, {name}: fastest / median, ms / fastest to floor", value, required))
        rows.append((f"K = {tokens}, floor, ms", f"{least:.2f}", ""))
    rows.append(("weights not folded against folded", str(compare(runtime, plain, rows=1000)), "equal"))
    rows.append(("int8 against float32", str(compare(runtime, small, rows=1000)), ""))
    show(rows)


def _step_by_step(runtime: BasePredictor, observation: Observation, decoding: TokenDecoding) -> Chunk:
    """Predict a chunk by the loop over tokens that eager policies use, as a stopping rule needs it."""
    return runtime.predict_chunk(observation, decoding, stopping=Timeline())


def floor_ms(policy: AutoregressivePolicy, tokens: int) -> float:
    """Return the time to read each token's weights once and for the decoder's products, at the machine's best rate."""
    blocks = policy.backbone.blocks
    width = policy.config.width.dim
    step = _products(blocks) - 2 * width**2 * len(blocks) + policy.outputs * width  # the context is projected once
    matrix = torch.randn(step // width, width)
    vector = torch.randn(width)
    inner = torch.randn(width, 4 * width)
    outer = torch.randn(ACTIONS, width)
    rate = inner.numel() / fastest(lambda: outer @ inner)
    decoder = policy.tokenizer.decoder
    assert isinstance(decoder, SinglePassDecoder)
    return 1e3 * (tokens * fastest(lambda: torch.mv(matrix, vector)) + _products(decoder.blocks) / rate)


def _products(module: torch.nn.Module) -> int:
    """Return how many numbers a module's matrices hold."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.ndim == 2)


def fastest(call: Callable[[], object], repeats: int = 300) -> float:
    """Return the seconds of the fastest call."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def server(requests: int = 500, clients: int = 8, hostile: int = 10_000) -> None:
    """Measure the server's overhead, several clients at once, and hostile messages.

    Args:
        requests: For the overhead.
        clients: At once, each with a tenth as many requests.
        hostile: Bad messages, during which a good client is served.
    """
    _, runtime, folder = prepare()
    with served(folder) as (process, url):
        rows = [measure_overhead(runtime, url, requests), measure_clients(url, clients, requests // 10)]
        rows += measure_hostile(process, url, hostile)
    show(rows)


def measure_overhead(runtime: BasePredictor, url: str, requests: int) -> Row:
    decoding, observation = TokenDecoding(8, num_actions=ACTIONS), runtime.random_observation(1)
    frames = {STATE: observation.values[STATE][0]}
    with PolicyClient(url) as client:
        calls: dict[str, Callable[[], object]] = {
            "local": lambda: runtime.predict_chunk(observation, decoding, Noise.of([0], [0])),
            "remote": lambda: client.infer(frames, "", (0, 0)),
        }
        times = time_calls(calls, requests)
    local, remote = (float(np.median(times[name])) for name in ("local", "remote"))
    return (
        "in-process / through the server, p50 ms; difference",
        f"{local:.2f} / {remote:.2f}; {remote - local:.2f}",
        "< 1",
    )


def measure_clients(url: str, clients: int, requests: int) -> Row:
    def drive(number: int) -> int:
        with PolicyClient(url) as client:
            frames = {STATE: np.full(STATE_DIM, number, np.float32)}
            return sum(client.infer(frames, "", (number, k)).actions.shape == (ACTIONS, 7) for k in range(requests))

    with ThreadPoolExecutor(clients) as pool:
        answered = sum(pool.map(drive, range(clients)))
    return f"{clients} clients at once: requests answered", f"{answered} of {clients * requests}", "all"


def measure_hostile(process: int, url: str, count: int) -> list[Row]:
    served_meanwhile: list[float] = []
    over = threading.Event()

    def behave() -> None:
        with PolicyClient(url) as client:
            while not over.is_set():
                served_meanwhile.append(client.infer({STATE: np.zeros(STATE_DIM, np.float32)}, "").total_ms)
                time.sleep(0.01)

    behaving = threading.Thread(target=behave)
    behaving.start()
    messages, refused, memory = hostile_messages((STATE_DIM,)), 0, []
    for number, message in enumerate(islice(messages, count)):
        if number % (count // 10) == 0:
            memory.append(resident_mb(process))
        refused += is_refused(url, message)
    memory.append(resident_mb(process))
    over.set()
    behaving.join()
    slow = float(np.quantile(served_meanwhile, 0.99))
    return [
        ("hostile messages refused with an explanation", f"{refused} of {count}", "all"),
        ("the server's memory after a tenth of them / at the end, MB", f"{memory[1]:.1f} / {memory[-1]:.1f}", "flat"),
        ("a good client's requests answered meanwhile; p99 ms", f"{len(served_meanwhile)}; {slow:.1f}", ""),
    ]


def is_refused(url: str, message: bytes | str) -> bool:
    with connect(url, compression=None) as connection:
        connection.recv(timeout=10)
        connection.send(message)
        explanation = connection.recv(timeout=10)
        with suppress(ConnectionClosed):
            connection.recv(timeout=10)
        return isinstance(explanation, str)


def resident_mb(process: int) -> float:
    (pages,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(pages) / 1024


def deadline(chunks: int = 2000, load: int = 2) -> None:
    """Measure how often a deadline is overrun, and how many tokens are used, while other processes are busy.

    Args:
        chunks: In all, over four deadlines.
        load: Busy processes, of lower priority.
    """
    _, runtime, _ = prepare()
    decoding = TokenDecoding(num_actions=ACTIONS)
    with busy(load):
        runtime.warm_up(1, decoding)
        before = [Timeline.measure(runtime, decoding) for _ in range(200)]
        deadlines = [float(np.median([each.total(k) for each in before])) for k in (2, 4, 6, 8)]
        parts = [measure_deadline(runtime, decoding, each, chunks // len(deadlines)) for each in deadlines]
        rows = [row for part in parts for row in part]
    show(rows)


class Timeline(StoppingRule):
    """When every token of a chunk was there, and how long it took to make actions of them, in milliseconds."""

    watches = True

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.tokens: list[float] = []
        self.finish = 0.0

    def wants_chunk(self, log_probabilities: torch.Tensor | None = None) -> bool:
        self.tokens.append(1e3 * (time.perf_counter() - self.begin))
        return False

    def total(self, tokens: int) -> float:
        return self.tokens[tokens - 1] + self.finish

    def most_tokens(self, milliseconds: float) -> int:
        """Return how many tokens somebody who knew all this could have used by then."""
        return sum(self.total(k) <= milliseconds for k in range(1, len(self.tokens) + 1))

    @classmethod
    def measure(cls, runtime: BasePredictor, decoding: TokenDecoding) -> "Timeline":
        observation, timeline = runtime.random_observation(1), cls()
        timeline.begin = time.perf_counter()
        values, tasks = runtime.read(observation)
        next(runtime.generate(values, tasks, decoding, Noise((0,)), timeline))
        timeline.finish = 1e3 * (time.perf_counter() - timeline.begin) - timeline.tokens[-1]
        return timeline


def measure_deadline(runtime: BasePredictor, decoding: TokenDecoding, milliseconds: float, chunks: int) -> list[Row]:
    observation, elapsed, used, possible = runtime.random_observation(1), [], 0, 0
    for _ in range(chunks):
        possible += Timeline.measure(runtime, decoding).most_tokens(milliseconds)
        begin = time.perf_counter()
        chunk = runtime.predict_chunk(observation, decoding, deadline_ms=milliseconds)
        elapsed.append(1e3 * (time.perf_counter() - begin))
        used += int(chunk.steps[0])
    late = float(np.mean(np.array(elapsed) > milliseconds + 2))
    return [
        (f"deadline {milliseconds:.1f} ms: later by more than 2 ms, of {chunks}", f"{late:.2%}", "≤ 1 %"),
        ("tokens used / an oracle's", f"{used} / {possible} = {used / possible:.2f}", "≥ 0.8"),
    ]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep the machine busy with other work, of lower priority."""
    workers = [multiprocessing.Process(target=_toil, daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _toil() -> None:
    os.nice(10)
    matrix = np.random.default_rng(0).normal(size=(512, 512))
    while True:
        matrix @ matrix


def prepare() -> tuple[AutoregressivePolicy, BasePredictor, Path]:
    """Return the policy in PyTorch and in ONNX Runtime, and its export."""
    torch.set_num_threads(1)
    policy, _ = make_policy()
    decoder = policy.tokenizer.decoder
    assert isinstance(decoder, SinglePassDecoder)
    for layer in (policy.embedding, decoder.head):  # untrained, logits would hardly differ, and actions not at all
        torch.nn.init.normal_(layer.weight, std=0.1)
    folder = _export(policy.eval(), "float32")
    return policy, load_runtime(folder), folder


def _export(policy: Policy, precision: Precision) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="oat-inference-"))
    write_graphs(policy, folder, precision)
    return folder


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, str]]:
    """Start a server in a process of its own, and give its number and address."""
    command = [sys.executable, "-c", "from oat.cli import main; main()", "serve", str(folder), "--port", "0"]
    command += ["--num-actions", str(ACTIONS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            (url,) = re.findall(r"ws://\S+", process.stdout.readline())
            yield process.pid, url
        finally:
            process.terminate()


def show(rows: list[Row]) -> None:
    table = Table("measure", "value", "required", box=box.MARKDOWN)
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"latency": latency, "server": server, "deadline": deadline})
