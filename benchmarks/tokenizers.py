"""What the tokenizers do per second and how fast they learn. Ratios come from one run on one machine.

python benchmarks/tokenizers.py speed
python benchmarks/tokenizers.py quality DATA      the cpu preset, timed; about 15 minutes on two idle cores
python benchmarks/tokenizers.py recipes DATA      ours against the paper's, on the paper's model; about an hour
python benchmarks/tokenizers.py decoders DATA     what a causal decoder costs; about 20 minutes

DATA is `oat collect metaworld --tasks box-close coffee-pull disassemble stick-pull --episodes 50 --seed 0 --out DATA`.
Training continues where it was, if it was interrupted.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, this file would stand for the library `tokenizers`, which FAST imports

import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from oat.data.episodes import open_dataset
from oat.tokenizers import TOKENIZERS, BaseTokenizer, FASTTokenizer
from oat.tokenizers.config import OAT_PRESETS, OATConfig
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.measures import codebook_use, draw_chunks
from oat.training.config import FitConfig
from oat.training.tokenizers import fit_tokenizer, split_windows

HORIZON, DIM = 32, 7
REFERENCE_ENCODE_RATE = 700  # chunks/s of the authors' encoder on two threads of a machine of this kind
PAPER_STEPS, OUR_STEPS, BATCH = 2000, 400, 64
OURS_ON_THE_PAPER_S_MODEL: dict[str, Any] = {
    "steps": OUR_STEPS,
    "batch_size": BATCH,
    "learning_rate": 2e-3,
    "optimizer": "muon",
    "schedule": "cosine",
    "precision": "no",
    "validate_every": OUR_STEPS,
}
Row = tuple[str, str, str]


def speed() -> None:
    """Measure encoding and decoding rates on random smooth 32 × 7 chunks."""
    chunks = np.cumsum(np.random.default_rng(0).normal(size=(8192, HORIZON, DIM)), axis=1).astype(np.float32)
    actions = torch.from_numpy(chunks)
    rows: list[Row] = []
    fast = _fitted("fast", actions)
    assert isinstance(fast, FASTTokenizer)
    strings = fast.strings(fast.coefficients(fast.to_model_space(actions)))
    ours, bare = _rate(lambda: fast.encode(actions), 8192), _rate(lambda: fast.bpe.encode_batch_fast(strings), 8192)
    rows.append(("FAST encode / encode_batch_fast", f"{ours:,.0f} / {bare:,.0f} = {ours / bare:.2f}", "≥ 0.8"))
    binned = _fitted("bin", actions)
    rows.append(("Bin encode, chunks/s", f"{_rate(lambda: binned.encode(actions), 8192):,.0f}", "≥ 200,000"))
    oat = _fitted("oat", actions)
    rate = _rate(lambda: oat.encode(actions[:2048]), 2048)
    rows.append(
        ("OAT encode, paper size, chunks/s", f"{rate:,.0f} = {rate / REFERENCE_ENCODE_RATE:.2f} × 700", "≥ 1.3 × 700")
    )
    tokens = oat.encode(actions[:512])
    whole, half = (
        _rate(lambda: oat.decode(tokens), 512),
        _rate(lambda: oat.decode(tokens, num_actions=HORIZON // 2), 512),
    )
    rows.append(("OAT decode, 16 of 32 steps / all", f"{half:,.0f} / {whole:,.0f} = {half / whole:.2f}", "> 1"))
    _print(rows, f"{torch.get_num_threads()} threads")


def quality(data: tyro.conf.Positional[Path], out: Path = Path("out/benchmarks")) -> None:
    """Train the cpu preset and show its time, error per prefix and use of the codebook over all training chunks.

    Args:
        data: The demonstrations.
        out: Where the runs are kept.
    """
    begin = time.perf_counter()
    ours = _train(FitConfig.of(data, out / "cpu", resume=True))
    minutes = (time.perf_counter() - begin) / 60
    uniform: dict[str, Any] = {"keep": "uniform", "prefixes": 1, "balance": 0.0, "spread": 0.0}
    plain = _train(FitConfig.of(data, out / "cpu-uniform", resume=True, **uniform))
    tokenizer = load_tokenizer(out / "cpu")
    windows, _ = split_windows(open_dataset(data), tokenizer.space, 0.1, 0)
    chunks = draw_chunks(windows, tokenizer)
    uses = codebook_use(chunks.encode(tokenizer), tokenizer.vocab_size)
    even = 1 - (1 - 1 / tokenizer.vocab_size) ** len(chunks)  # what a uniform code would show
    falling = all(b < a for a, b in pairwise(ours))
    _print(
        [
            ("cpu preset, minutes", f"{minutes:.1f}", "≤ 15"),
            ("D_1 … D_8", _numbers(ours), "strictly decreasing: " + ("yes" if falling else "NO")),
            ("the same steps, plain uniform", _numbers(plain), ""),
            ("D_8 / plain uniform's D_1", f"{ours[-1] / plain[0]:.3f}", "≤ 0.25"),
            ("used codes / a uniform code's", " ".join(f"{use.used / even:.2f}" for use in uses), "≥ 0.60 each"),
            ("perplexity", " ".join(f"{use.perplexity:.0f}" for use in uses), ""),
        ],
        f"{len(chunks)} training chunks",
    )


def recipes(data: tyro.conf.Positional[Path], out: Path = Path("out/benchmarks")) -> None:
    """Our objective and schedule against the paper's, both on the paper's model.

    Args:
        data: The demonstrations.
        out: Where the runs are kept.
    """
    paper: dict[str, Any] = {"steps": PAPER_STEPS, "batch_size": BATCH, "precision": "no", "validate_every": 250}
    theirs = _train(FitConfig.of(data, out / "recipe-paper", preset="paper", resume=True, **paper))
    cpu = OAT_PRESETS["cpu"].model
    assert isinstance(cpu, OATConfig)
    objective = cpu.objective
    model: dict[str, Any] = {
        "grid": cpu.grid,
        "prefixes": objective.prefixes,
        "balance": objective.balance,
        "spread": objective.spread,
    }
    recipe = OURS_ON_THE_PAPER_S_MODEL
    ours = _train(FitConfig.of(data, out / "recipe-ours", preset="paper", resume=True, **model, **recipe))
    _print(
        [
            (f"paper's recipe, {PAPER_STEPS} steps", _numbers(theirs), ""),
            (f"ours, {OUR_STEPS} steps", _numbers(ours), f"{PAPER_STEPS // OUR_STEPS} times fewer steps"),
            ("ours / paper's", " ".join(f"{a / b:.2f}" for a, b in zip(ours, theirs, strict=True)), "≤ 1 each"),
        ],
        f"paper-size model, batch {BATCH}, held-out D_1 … D_8",
    )


def decoders(data: tyro.conf.Positional[Path], steps: int = 1500, out: Path = Path("out/benchmarks")) -> None:
    """Compare the decoder's self-attention causal in time with one that is not: the same steps for both.

    Args:
        data: The demonstrations.
        steps: Training steps.
        out: Where the runs are kept.
    """
    errors = {
        causal: _train(
            FitConfig.of(
                data,
                out / f"decoder-{'causal' if causal else 'full'}",
                causal_decoder=causal,
                steps=steps,
                validate_every=steps,
                resume=True,
            )
        )
        for causal in (True, False)
    }
    ratios = " ".join(f"{a / b:.2f}" for a, b in zip(errors[True], errors[False], strict=True))
    _print(
        [("causal", _numbers(errors[True]), ""), ("full", _numbers(errors[False]), ""), ("ratio", ratios, "")],
        f"held-out D_1 … D_8 after {steps} steps",
    )


def _fitted(kind: str, actions: torch.Tensor) -> BaseTokenizer:
    """Return a tokenizer of the paper's size with its range and merges, untrained: weights do not change its speed."""
    steps = 0 if TOKENIZERS.config(kind).trained() else None
    return TOKENIZERS[kind].fit(actions, preset="paper", steps=steps, validation=0.0)


def _rate(call: Callable[[], object], items: int, seconds: float = 2.0) -> float:
    """Items per second: the best of repeated calls, which other load disturbs least."""
    call()
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return items / best


def _train(config: FitConfig) -> list[float]:
    """Held-out error of every prefix at the run's end."""
    fit_tokenizer(config)
    lines = [json.loads(line) for line in (config.out / "metrics.jsonl").read_text().splitlines()]
    last = next(line for line in reversed(lines) if "validation/score" in line)
    return [value for name, value in last.items() if name.startswith("validation/mse_")]


def _numbers(values: list[float]) -> str:
    return " ".join(f"{value:.4f}" for value in values)


def _print(rows: list[Row], caption: str) -> None:
    table = Table("measure", "value", "required", box=box.MARKDOWN, caption=caption)
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict(
        {"speed": speed, "quality": quality, "recipes": recipes, "decoders": decoders}, description=__doc__
    )
