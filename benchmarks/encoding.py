"""Measure `oat encode`: chunks per core second against the bare encoder, and memory; ratios come from one run.

OMP_NUM_THREADS=1 python -m benchmarks.encoding rates [--chunks 20000]
OMP_NUM_THREADS=1 python -m benchmarks.encoding memory [--frames 100000 1000000 10000000]
"""

import multiprocessing
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import tyro
from rich.console import Console

from benchmarks.data import ACTION_DIM, HORIZON, anonymous_megabytes, write_large
from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import open_dataset
from oat.encoding.config import EncodeConfig
from oat.encoding.parts import EncodeJob
from oat.encoding.run import begin_encoding, encode_dataset
from oat.io.processes import worker_pool
from oat.tables.table import Table
from oat.tables.terminal import to_terminal
from oat.tokenizers import TOKENIZERS, BaseTokenizer

BLOCK = 4096
FRAMES = 1_000_000_000


def rates(chunks: int = 20_000, preset: str = "cpu", repeats: int = 3) -> None:
    """Compare encoding a data set with encoding the same chunks from memory, alternately.

    Args:
        chunks: Chunks of the data set.
        preset: Size of the OAT tokenizer.
        repeats: How often each is done; the fastest counts. Processor time is measured: others may use the machine.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_large(folder / "set.npz", chunks)
        tokenizer = _tokenizer(folder / "set.npz", "oat", preset)
        tokenizer.save(folder / "tokenizer")
        part = -(-chunks // 4)
        fastest = dict.fromkeys(("bare", "one", "two", "errors"), float("inf"))
        for number in range(repeats):
            seconds = {
                "bare": _encode_bare(folder / "set.npz", tokenizer),
                "one": _encode(folder, f"one-{number}", part, workers=1),
                "two": _encode(folder, f"two-{number}", part, workers=2),
            }
            fastest |= {way: min(fastest[way], taken) for way, taken in seconds.items()}
        fastest["errors"] = _encode(folder, "errors", part, workers=1, errors=True)
    rows = tuple(
        (label, f"{chunks / fastest[way]:,.0f}", f"{fastest['bare'] / fastest[way]:.2f}", _cost(chunks / fastest[way]))
        for way, label in {
            "bare": "the bare encoder, chunks in memory",
            "one": "oat encode --no-errors, one process",
            "two": "oat encode --no-errors, two processes",
            "errors": "oat encode, one process, with the errors of eight prefixes",
        }.items()
    )
    title = f"OAT, preset {preset}, {chunks:,} chunks of {HORIZON} × {ACTION_DIM}, one thread per process"
    columns = ("", "chunks per core second", "/ bare encoder's", "core hours for 10⁹ frames")
    Console().print(to_terminal(Table(title, columns, rows)))


def _cost(rate: float) -> str:
    return f"{FRAMES / rate / 3600:,.0f}"


def _tokenizer(data: Path, kind: str, preset: str) -> BaseTokenizer:
    """Return an untrained tokenizer, which encodes as fast as a trained one."""
    windows = Windows(open_dataset(data), WindowConfig(HORIZON))
    chunks = torch.from_numpy(windows[np.arange(0, min(len(windows), 2000))].actions)
    steps = 0 if TOKENIZERS.config(kind).trained() else None
    return TOKENIZERS[kind].fit(chunks, preset=preset, steps=steps, progress=False)


def _encode_bare(data: Path, tokenizer: BaseTokenizer) -> float:
    """Return the processor's seconds of encoding chunks that are in memory."""
    windows = Windows(open_dataset(data), WindowConfig(HORIZON))
    blocks = [
        torch.from_numpy(windows[np.arange(first, min(first + BLOCK, len(windows)))].actions)
        for first in range(0, len(windows), BLOCK)
    ]
    tokenizer.encode(blocks[0])  # untimed, as the first part is below
    begin = time.process_time()
    for block in blocks:
        tokenizer.encode(block)
    return time.process_time() - begin


def _encode(folder: Path, name: str, part: int, workers: int, errors: bool = False) -> float:
    """Return the processor's seconds of encoding, summed over processes, without those in which they start."""
    config = EncodeConfig(folder / "set.npz", folder / "tokenizer", folder / name, errors=errors, part_size=part)
    info, job = begin_encoding(config)
    parts = [each.tolist() for each in np.array_split(np.arange(info.num_parts), workers)]
    if workers == 1:
        return _write_all(job, parts[0])
    with worker_pool(workers) as pool:
        return sum(pool.map(_write_all, [job] * workers, parts))


def _write_all(job: EncodeJob, parts: list[int]) -> float:
    writer = job.open()
    writer.write(parts[0])  # what is loaded at the first use is not the rate of large sets
    begin = time.process_time()
    for part in parts:
        writer.write(part)
    return time.process_time() - begin


def memory(frames: tuple[int, ...] = (100_000, 1_000_000, 10_000_000), kind: str = "bin") -> None:
    """Measure the anonymous memory of encoding data sets of several sizes, each in a process of its own.

    Args:
        frames: Frames of the data sets.
        kind: Kind of the tokenizer; Bin is fast enough for ten million chunks.
    """
    rows = list[tuple[str, ...]]()
    for count in frames:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_large(folder / "set.npz", count)
            _tokenizer(folder / "set.npz", kind, "cpu").save(folder / "tokenizer")
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                peak, rate = pool.apply(_peak_memory, (folder,))
            rows.append((f"{count:,}", f"{peak:.0f}", f"{rate:,.0f}"))
    columns = ("frames", "anonymous memory, MB, at most", "chunks/s")
    Console().print(to_terminal(Table(f"oat encode --no-errors with {kind}, one process", columns, tuple(rows))))


def _peak_memory(folder: Path) -> tuple[float, float]:
    """Return the most anonymous memory beyond what this process had before, and the chunks per second."""
    config = EncodeConfig(folder / "set.npz", folder / "tokenizer", folder / "tokens", errors=False, workers=1)
    chunks = open_dataset(config.data).num_frames
    before = anonymous_megabytes()
    peak = before
    begin = time.perf_counter()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(encode_dataset, config)
        while not running.done():
            peak = max(peak, anonymous_megabytes())
            time.sleep(0.05)
        running.result()
    return peak - before, chunks / (time.perf_counter() - begin)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"rates": rates, "memory": memory})
