"""Measure what a processor loses when it is given actions in other units than it was fitted to.

python -m benchmarks.processor TOKENIZER DATA      a minute; DATA is what the tokenizer was fitted to

Programs such as openpi normalise actions before they call a processor, and undo it after decoding. All errors are in
the tokenizer's model space, of all its tokens, on held-out chunks; ratios come from one run.
"""

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import tyro
from rich.console import Console
from torch import Tensor

from oat.data.episodes import open_dataset
from oat.data.normalize import Normalizer, action_statistics
from oat.huggingface.processor import OATProcessor
from oat.tables.table import Table
from oat.tables.terminal import to_terminal
from oat.tokenizers import OATTokenizer
from oat.tokenizers.measures import draw_windows
from oat.training.tokenizers import split_windows


def error_of(
    processor: OATProcessor, actions: Tensor, caller: Normalizer | None, judge: OATTokenizer
) -> tuple[float, bool]:
    """Return the error of what comes back to the caller, who may normalise, and whether the processor warned."""
    given = actions if caller is None else caller.normalize(actions)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decoded = torch.from_numpy(processor.decode(processor(given)))
    returned = decoded if caller is None else caller.denormalize(decoded)
    difference = judge.to_model_space(returned) - judge.to_model_space(actions)
    return float(difference.square().mean()), bool(caught)


def main(tokenizer: tyro.conf.Positional[Path], data: tyro.conf.Positional[Path], chunks: int = 2048) -> None:
    """Print the table.

    Args:
        tokenizer: An OAT tokenizer's checkpoint or run.
        data: The demonstrations that it was fitted to.
        chunks: Held-out chunks to encode.
    """
    raw = OATTokenizer.load(tokenizer)
    episodes = open_dataset(data)
    taught, held_out = split_windows(episodes, raw.space, *raw.training_record.split())
    actions = torch.from_numpy(held_out[draw_windows(held_out, chunks)].actions)
    statistics = action_statistics(taught)
    own = raw.training_record.normalization or "min_max"
    with TemporaryDirectory() as folder:
        raw.save_pretrained(Path(folder) / "processor", inputs="normalized")
        saved = OATProcessor.from_pretrained(Path(folder) / "processor")
    low, high = statistics.quantiles((0.01, 0.99))
    callers = {
        "mean and deviation": Normalizer.from_range(statistics.mean - statistics.std, statistics.mean + statistics.std),
        "1 % and 99 % quantiles": Normalizer.from_range(low, high),
    }
    measured = {"raw actions": error_of(OATProcessor(raw), actions, None, raw)}
    for name, caller in callers.items():
        measured[f"normalised by {name}"] = error_of(OATProcessor(raw), actions, caller, raw)
    measured[f'normalised by {own}, save_pretrained(inputs="normalized")'] = error_of(
        saved, actions, raw.normalizer, raw
    )
    usual, _ = measured["raw actions"]
    rows = tuple(
        (name, f"{error:.4f}", f"{error / usual:.2f}", "yes" if warned else "no")
        for name, (error, warned) in measured.items()
    )
    title = f"{tokenizer}, fitted to raw actions: {len(actions):,} held-out chunks of {data}"
    Console().print(to_terminal(Table(title, ("given", "MSE, model space", "/ raw", "warned"), rows)))


if __name__ == "__main__":
    tyro.cli(main)
