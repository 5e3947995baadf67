"""Measure what a processor loses when it is given actions in other units than it was fitted to.

python -m benchmarks.processor DATA…      a few minutes for each data set

Programs such as openpi normalise actions before they call the processor, here by the first and 99th percentile. All
errors are in those normalised units, of eight tokens, on held-out chunks; ratios come from one run.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import tyro
from rich.console import Console
from torch import Tensor

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import open_dataset
from oat.data.normalize import Normalizer, action_statistics
from oat.data.splits import split_episodes
from oat.huggingface.processor import OATProcessor
from oat.tables.table import Table
from oat.tables.terminal import to_terminal
from oat.tokenizers import OATTokenizer
from oat.tokenizers.measures import draw_windows

HORIZON, MOST = 32, 4096


@dataclass(frozen=True)
class Chunks:
    """Hold chunks to fit to and held-out ones, in action units, and how a caller normalises them."""

    taught: Tensor
    held_out: Tensor
    caller: Normalizer

    @classmethod
    def of(cls, data: Path) -> "Chunks":
        """Draw chunks of a data set; statistics are of the episodes that are not held out."""
        episodes = open_dataset(data)
        taught, held_out = (Windows(episodes.select(ids), WindowConfig(HORIZON)) for ids in split_episodes(episodes))
        statistics = action_statistics(taught)
        caller = Normalizer.from_range(*statistics.quantiles((0.01, 0.99)))  # unlike ours, openpi's does not clip
        return cls(_draw(taught), _draw(held_out), caller)


def _draw(windows: Windows) -> Tensor:
    return torch.from_numpy(windows[draw_windows(windows, MOST)].actions)


def measure(name: str, chunks: Chunks, steps: int) -> list[tuple[str, ...]]:
    """Return the error of each way to fit and call a processor, and whether it warned."""
    given = chunks.caller.normalize(chunks.held_out)
    raw = OATTokenizer.fit(chunks.taught, preset="tiny", steps=steps)
    by_quantiles = OATTokenizer.fit(chunks.taught, preset="tiny", steps=steps, normalization="quantile")
    with TemporaryDirectory() as folder:
        by_quantiles.save_pretrained(Path(folder) / "processor", inputs="normalized")
        saved = OATProcessor.from_pretrained(Path(folder) / "processor")
    fitted = OATProcessor.fit(chunks.caller.normalize(chunks.taught), normalized=True, preset="tiny", steps=steps)
    ways = {
        "fitted to raw, given raw": (OATProcessor(raw), chunks.held_out),
        "fitted to raw, given normalised": (OATProcessor(raw), given),
        'save_pretrained(inputs="normalized"), given normalised': (saved, given),
        "fit(normalized=True), given normalised": (fitted, given),
    }
    rows = list[tuple[str, ...]]()
    for way, (processor, actions) in ways.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            decoded = torch.from_numpy(processor.decode(processor(actions)))
        answer = chunks.caller.normalize(decoded) if actions is chunks.held_out else decoded
        error = float((answer - given).square().mean())
        rows.append((name, way, f"{error:.4f}", "yes" if caught else "no"))
    return rows


def main(data: tyro.conf.Positional[tuple[Path, ...]], steps: int = 200) -> None:
    """Print the table.

    Args:
        data: Demonstrations in any known format.
        steps: Training steps of each tokenizer, preset tiny.
    """
    rows = [row for path in data for row in measure(path.stem, Chunks.of(path), steps)]
    title = f"{HORIZON} actions as eight tokens, preset tiny, {steps} steps"
    columns = ("data", "processor", "MSE, normalised units", "warned")
    Console().print(to_terminal(Table(title, columns, tuple(rows))))


if __name__ == "__main__":
    tyro.cli(main)
