"""Measure `oat encode`: chunks per core second against the bare encoder, and memory; ratios come from one run.

OMP_NUM_THREADS=1 python -m benchmarks.encoding rates [--chunks 32768]
OMP_NUM_THREADS=1 python -m benchmarks.encoding memory [--frames 100000 1000000 10000000]
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable
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


def rates(chunks: int = 32_768, preset: str = "cpu", repeats: int = 3) -> None:
    """Compare encoding a data set with encoding the same chunks from memory, alternately.

    Args:
        chunks: Chunks of the data set, in four files.
        preset: Size of the OAT tokenizer.
        repeats: How often each is done; the fastest counts. Processor time is measured: others may use the machine.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_large(folder / "set.npz", chunks)
        tokenizer = _tokenizer(folder / "set.npz", "oat", preset)
        tokenizer.save(folder / "tokenizer")
        ways: dict[str, Callable[[int], float]] = {
            "the bare encoder, chunks in memory": lambda _: _encode_bare(folder / "set.npz", tokenizer),
            "oat encode --no-errors, one process": lambda number: _encode(folder, f"one-{number}", chunks, 1),
            "oat encode --no-errors, two processes": lambda number: _encode(folder, f"two-{number}", chunks, 2),
        }
        taken = [{way: measure(number) for way, measure in ways.items()} for number in range(repeats)]
        fastest = {way: max(each[way] for each in taken) for way in ways}
        fastest["oat encode, one process, errors of eight prefixes"] = _encode(folder, "errors", chunks, 1, errors=True)
    bare = fastest["the bare encoder, chunks in memory"]
    rows = tuple((way, f"{rate:,.0f}", f"{rate / bare:.2f}", _cost(rate)) for way, rate in fastest.items())
    title = f"OAT, preset {preset}, {chunks:,} chunks of {HORIZON} × {ACTION_DIM}, one thread per process"
    columns = ("", "chunks per core second", "/ bare encoder's", "core hours for 10⁹ frames")
    Console().print(to_terminal(Table(title, columns, rows)))
    for number, each in enumerate(taken):
        Console().print(f"run {number}:", ", ".join(f"{way}: {rate:,.0f}" for way, rate in each.items()))


def _cost(rate: float) -> str:
    return f"{FRAMES / rate / 3600:,.0f}"


def _tokenizer(data: Path, kind: str, preset: str, horizon: int = HORIZON) -> BaseTokenizer:
    """Return an untrained tokenizer, which encodes as fast as a trained one."""
    windows = Windows(open_dataset(data), WindowConfig(horizon))
    chunks = torch.from_numpy(windows[np.arange(0, min(len(windows), 2000))].actions)
    steps = 0 if TOKENIZERS.config(kind).trained() else None
    return TOKENIZERS[kind].fit(chunks, preset=preset, steps=steps, progress=False)


def _encode_bare(data: Path, tokenizer: BaseTokenizer) -> float:
    """Return the chunks per processor second of encoding those that are in memory."""
    windows = Windows(open_dataset(data), WindowConfig(HORIZON))
    blocks = [
        torch.from_numpy(windows[np.arange(first, min(first + BLOCK, len(windows)))].actions)
        for first in range(0, len(windows), BLOCK)
    ]
    tokenizer.encode(blocks[0])  # untimed, as the first part is below
    begin = time.process_time()
    for block in blocks:
        tokenizer.encode(block)
    return len(windows) / (time.process_time() - begin)


def _encode(folder: Path, name: str, chunks: int, workers: int, errors: bool = False) -> float:
    """Return the chunks per processor second, summed over processes, without those in which they start.

    With errors, which take much longer, it is the rate of the first of four files.
    """
    config = EncodeConfig(
        folder / "set.npz", folder / "tokenizer", folder / name, errors=errors, part_size=-(-chunks // 4)
    )
    info, job = begin_encoding(config)
    numbers = np.arange(1 if errors else info.num_parts)
    parts = [each.tolist() for each in np.array_split(numbers, workers)]
    encoded = sum(len(info.rows(part)) for part in numbers.tolist())
    if workers == 1:
        return encoded / _write_all(job, parts[0])
    with worker_pool(workers) as pool:
        return encoded / sum(pool.map(_write_all, [job] * workers, parts))


def _write_all(job: EncodeJob, parts: list[int]) -> float:
    """Return the processor's seconds of writing some parts."""
    writer = job.open()
    writer.write(parts[0])  # what is loaded at the first use is not the rate of large sets
    begin = time.process_time()
    for part in parts:
        writer.write(part)
    return time.process_time() - begin


def memory(frames: tuple[int, ...] = (100_000, 1_000_000, 10_000_000), kind: str = "bin", horizon: int = 4) -> None:
    """Measure the anonymous memory of encoding data sets of several sizes, each in a process of its own.

    Args:
        frames: Frames of the data sets.
        kind: Kind of the tokenizer; Bin is fast enough for ten million chunks.
        horizon: Actions of a chunk; with few, ten million chunks take little time.
    """
    rows = list[tuple[str, ...]]()
    for count in frames:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_large(folder / "set.npz", count)
            tokenizer = _tokenizer(folder / "set.npz", kind, "cpu", horizon)
            tokenizer.save(folder / "tokenizer")
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                peak, rate = pool.apply(_peak_memory, (folder,))
            rows.append((f"{count:,}", f"{peak:.0f}", f"{rate:,.0f}"))
    title = f"oat encode --no-errors with {kind}, {tokenizer.max_tokens} tokens a chunk, one process"
    columns = ("frames", "anonymous memory, MB, at most", "chunks per core second")
    Console().print(to_terminal(Table(title, columns, tuple(rows))))


def _peak_memory(folder: Path) -> tuple[float, float]:
    """Return the most anonymous memory beyond what this process had before, and the chunks per processor second."""
    config = EncodeConfig(folder / "set.npz", folder / "tokenizer", folder / "tokens", errors=False, workers=1)
    chunks = open_dataset(config.data).num_frames
    before = anonymous_megabytes()
    peak = before
    begin = time.process_time()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(encode_dataset, config)
        while not running.done():
            peak = max(peak, anonymous_megabytes())
            time.sleep(0.05)
        running.result()
    return peak - before, chunks / (time.process_time() - begin)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"rates": rates, "memory": memory})
