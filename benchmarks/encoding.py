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


BARE = {1: "the bare encoder, chunks in memory, one process", 2: "the bare encoder, two processes"}
ENCODE = {1: "oat encode --no-errors, one process", 2: "oat encode --no-errors, two processes"}
ERRORS = "oat encode, one process, errors of eight prefixes"


def rates(chunks: int = 32_768, preset: str = "cpu", repeats: int = 3, errors: bool = True) -> None:
    """Compare encoding a data set with encoding the same chunks from memory, alternately.

    Args:
        chunks: Chunks of the data set, in four files.
        preset: Size of the OAT tokenizer.
        repeats: How often each is done; the fastest counts. Processor time is measured: others may use the machine.
        errors: Whether to measure also what the errors of all prefixes cost.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_large(folder / "set.npz", chunks)
        _tokenizer(folder / "set.npz", "oat", preset).save(folder / "tokenizer")
        taken = list[dict[str, float]]()
        for number in range(repeats):
            taken.append({})
            for workers in BARE:
                job, encoded, parts = _begin(folder, f"{workers}-{number}", chunks, workers)
                taken[-1][BARE[workers]] = encoded / _seconds(_encode_bare, job, parts)
                taken[-1][ENCODE[workers]] = encoded / _seconds(_write_all, job, parts)
        fastest = {way: max(each[way] for each in taken) for way in taken[0]}
        if errors:
            job, encoded, _ = _begin(folder, "errors", chunks, 1, errors=True)
            fastest[ERRORS] = encoded / 4 / _seconds(_write_all, job, [[0]])
    against = {**{ENCODE[workers]: fastest[BARE[workers]] for workers in BARE}, ERRORS: fastest[BARE[1]]}
    rows = tuple(
        (way, f"{rate:,.0f}", f"{rate / against.get(way, rate):.2f}", _cost(rate)) for way, rate in fastest.items()
    )
    title = f"OAT, preset {preset}, {chunks:,} chunks of {HORIZON} × {ACTION_DIM}, one thread per process"
    columns = ("", "chunks per core second", "/ bare, as many processes", "core hours for 10⁹ frames")
    Console(width=120).print(to_terminal(Table(title, columns, rows)))


def _cost(rate: float) -> str:
    return f"{FRAMES / rate / 3600:,.0f}"


def _tokenizer(data: Path, kind: str, preset: str, horizon: int = HORIZON) -> BaseTokenizer:
    """Return an untrained tokenizer, which encodes as fast as a trained one."""
    windows = Windows(open_dataset(data), WindowConfig(horizon))
    chunks = torch.from_numpy(windows[np.arange(0, min(len(windows), 2000))].actions)
    steps = 0 if TOKENIZERS.config(kind).trained() else None
    return TOKENIZERS[kind].fit(chunks, preset=preset, steps=steps, progress=False)


def _begin(
    folder: Path, name: str, chunks: int, workers: int, errors: bool = False
) -> tuple[EncodeJob, int, list[list[int]]]:
    """Return the job of encoding, how many chunks that are, and which of four files each process writes."""
    config = EncodeConfig(
        folder / "set.npz", folder / "tokenizer", folder / name, errors=errors, part_size=-(-chunks // 4)
    )
    info, job = begin_encoding(config)
    parts = [each.tolist() for each in np.array_split(np.arange(info.num_parts), workers)]
    return job, info.chunks, parts


def _seconds(work: Callable[[EncodeJob, list[int]], float], job: EncodeJob, parts: list[list[int]]) -> float:
    """Return the processor's seconds of some work, summed over as many processes as there are lists of parts."""
    if len(parts) == 1:
        return work(job, parts[0])
    with worker_pool(len(parts)) as pool:
        return sum(pool.map(work, [job] * len(parts), parts))


def _encode_bare(job: EncodeJob, parts: list[int]) -> float:
    """Return the processor's seconds of encoding chunks that are in memory, after a first time without a clock."""
    writer = job.open()
    rows = [number for part in parts for number in writer.token_set.info.rows(part)]
    blocks = [
        torch.from_numpy(writer.windows[np.array(rows[first : first + BLOCK])].actions)
        for first in range(0, len(rows), BLOCK)
    ]
    writer.tokenizer.encode(blocks[0])  # untimed, as the first part is below
    begin = time.process_time()
    for block in blocks:
        writer.tokenizer.encode(block)
    return time.process_time() - begin


def _write_all(job: EncodeJob, parts: list[int]) -> float:
    """Return the processor's seconds of writing some parts, after the first one has been written without a clock."""
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
