"""Measure tokenizers on held-out chunks, and decode a few of those chunks prefix by prefix."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from oat.data.chunks import Windows
from oat.data.episodes import Episodes
from oat.errors import InvalidOption
from oat.io.training_record import TrainingRecord
from oat.report.datasets import NamedDataset
from oat.report.results_folder import method_of
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.measures import (
    TokenizerMeasures,
    chunks_at,
    decode_prefixes,
    draw_chunks,
    draw_windows,
    evaluate,
    model_errors,
    typical_chunks,
)
from oat.tokenizers.space import ActionSpace
from oat.training.tokenizers import split_windows

_CHUNKS = 2048  # that errors are measured on
_EXAMPLES = 6  # chunks that the page's slider refines


@dataclass(frozen=True)
class Example:
    """Hold one chunk and what each prefix of its tokens decodes to, in action units, dimension by dimension."""

    label: str
    truth: list[list[float]]
    decoded: list[list[list[float]]]
    """Decoded values of each prefix."""
    errors: list[float]
    """Mean squared error in model space, for each prefix."""
    tokens: list[int]


@dataclass(frozen=True)
class MeasuredTokenizer:
    """Hold how well a tokenizer does on held-out chunks, and examples of what that looks like."""

    name: str
    method: str
    data: str
    """The data set that the chunks are from."""
    space: ActionSpace
    dimensions: tuple[str, ...]
    motions: bool
    """Whether actions seem to be motions, and not positions: a robot can stand still by giving zeros."""
    ordered: bool
    """Whether prefixes decode."""
    vocab_size: int
    evaluation: TokenizerMeasures
    examples: tuple[Example, ...]
    remark: str
    """A warning about how to read its errors; empty if there is none."""


def group_by_chunks(tokenizers: Sequence[MeasuredTokenizer]) -> list[list[MeasuredTokenizer]]:
    """Group tokenizers that were measured on the same chunks: only their errors can be compared."""
    groups: dict[tuple[str, ActionSpace], list[MeasuredTokenizer]] = {}
    for tokenizer in tokenizers:
        groups.setdefault((tokenizer.data, tokenizer.space), []).append(tokenizer)
    return list(groups.values())


def most_comparable(tokenizers: Sequence[MeasuredTokenizer]) -> list[MeasuredTokenizer]:
    """Return the largest group of tokenizers that were measured on the same chunks."""
    return max(group_by_chunks(tokenizers), key=len, default=[])


def best_ordered(tokenizers: Sequence[MeasuredTokenizer]) -> MeasuredTokenizer | None:
    """Return the ordered tokenizer of the largest group whose error is smallest on average over its prefixes."""
    # The mean, and not the last error: a tokenizer with fewer prefixes would win by having left out the coarse ones.
    ordered = [tokenizer for tokenizer in most_comparable(tokenizers) if tokenizer.ordered]
    return min(ordered, key=lambda tokenizer: float(np.mean(tokenizer.evaluation.mse)), default=None)


def measure_tokenizer(name: str, path: Path, candidates: Sequence[NamedDataset]) -> MeasuredTokenizer:
    """Measure the tokenizer at a path on the data set that it was fitted to, or on the one that comes closest."""
    tokenizer = load_tokenizer(path)
    dataset = _choose_dataset(name, tokenizer, candidates)
    _, held_out = split_windows(dataset.episodes, tokenizer.space, *tokenizer.training_record.split())
    numbers = draw_windows(held_out, _CHUNKS)
    chunks = chunks_at(held_out, numbers, tokenizer)
    # Of few chunks, the same one may be chosen several times.
    shown = list(dict.fromkeys(typical_chunks(chunks, _EXAMPLES)))
    return MeasuredTokenizer(
        name=name,
        method=method_of(name),
        data=dataset.name,
        space=tokenizer.space,
        dimensions=dataset.episodes.action_names or tuple(f"dimension {dim}" for dim in range(tokenizer.action_dim)),
        motions=tokenizer.space.transform.state_key is None and _include_zero(dataset.episodes),
        ordered=tokenizer.prefix_decodable,
        vocab_size=tokenizer.vocab_size,
        evaluation=evaluate(tokenizer, chunks, everything=draw_chunks(held_out, tokenizer), name=name),
        examples=_decode_examples(tokenizer, held_out, numbers[shown]),
        remark=_remark(name, tokenizer.training_record, dataset),
    )


def _remark(name: str, record: TrainingRecord, dataset: NamedDataset) -> str:
    """Warn where the split into training and held-out episodes may have been another than this one."""
    if any(_closeness(record, dataset)):
        return ""
    return (
        f"{name} was fitted to {record.data or 'unknown data'}, which may hold the same episodes as "
        f"{dataset.name}: its chunks may not be new to it."
    )


def _include_zero(episodes: Episodes) -> bool:
    """Return whether zero is within the range of the first three dimensions, which are the end effector's place."""
    places = episodes.actions[:, :3]
    return bool(((places.min(0) <= 0) & (places.max(0) >= 0)).all())


def _choose_dataset(name: str, tokenizer: BaseTokenizer, candidates: Sequence[NamedDataset]) -> NamedDataset:
    """Choose the data set the tokenizer was fitted to, else one with as many frames, else any of its dimension."""
    fitting = [dataset for dataset in candidates if dataset.episodes.action_dim == tokenizer.action_dim]
    if not fitting:
        raise InvalidOption(
            f"there is no data set with {tokenizer.action_dim}-D actions to hold the tokenizer {name} against; "
            "name one with --data"
        )
    return max(fitting, key=lambda dataset: _closeness(tokenizer.training_record, dataset))


def _closeness(record: TrainingRecord, dataset: NamedDataset) -> tuple[bool, bool]:
    """Return whether a data set is where the tokenizer was fitted from, and whether it has as many frames."""
    same_path = Path(record.data or "").resolve() == dataset.path.resolve()
    # A data set that was moved, or copied from another machine, is recognised by its size.
    return same_path, record.frames == dataset.episodes.num_frames


def _decode_examples(
    tokenizer: BaseTokenizer, windows: Windows, numbers: Int64[np.ndarray, " examples"]
) -> tuple[Example, ...]:
    chunks = chunks_at(windows, numbers, tokenizer)
    tokens = chunks.encode(tokenizer)
    decoded = decode_prefixes(tokenizer, tokens, chunks)
    errors = model_errors(tokenizer, decoded, chunks)
    episodes, steps = windows.locate(numbers)
    return tuple(
        Example(
            label=f"{windows.episodes.task(episodes[row])}, from step {steps[row]}",
            truth=_round(chunks.actions[row, chunks.valid[row]].T.tolist()),
            decoded=_round(decoded[row][:, chunks.valid[row]].transpose(1, 2).tolist()),
            errors=_round(errors[row].tolist()),
            tokens=tokens.tolist()[row],
        )
        for row in range(len(chunks))
    )


def _round(values: Any) -> Any:
    """Round the numbers in nested lists to the digits that can be seen, because the page holds thousands of them."""
    return [_round(value) for value in values] if isinstance(values, list) else float(f"{values:.4g}")
