"""Tokenizers held against held-out chunks, and a few of those chunks prefix by prefix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from oat.data.chunks import Windows
from oat.data.episodes import Episodes
from oat.errors import InvalidOption
from oat.report.loaded import method_of
from oat.tokenizers.base import ActionTokenizer
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

_CHUNKS = 2048
_EXAMPLES = 6


@dataclass(frozen=True)
class Example:
    """One chunk and what each prefix of its tokens decodes to, in action units, dimension by dimension."""

    label: str
    truth: list[list[float]]
    decoded: list[list[list[float]]]
    """For each prefix."""
    errors: list[float]
    """Mean squared error in model space, for each prefix."""
    tokens: list[int]


@dataclass(frozen=True)
class Reconstruction:
    """A tokenizer, how well it does, and what that looks like."""

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
    """What must be known to read its errors, if anything."""


def group_by_chunks(tokenizers: Sequence[Reconstruction]) -> list[list[Reconstruction]]:
    """Those for the same chunks together: errors of different chunks cannot be compared."""
    groups: dict[tuple[str, ActionSpace], list[Reconstruction]] = {}
    for each in tokenizers:
        groups.setdefault((each.data, each.space), []).append(each)
    return list(groups.values())


def most_comparable(tokenizers: Sequence[Reconstruction]) -> list[Reconstruction]:
    """The largest group of tokenizers for the same chunks."""
    return max(group_by_chunks(tokenizers), key=len, default=[])


def best_ordered(tokenizers: Sequence[Reconstruction]) -> Reconstruction | None:
    """Of the largest group, the one with the smallest mean error over all its prefixes."""
    ordered = [each for each in most_comparable(tokenizers) if each.ordered]
    return min(ordered, key=lambda each: float(np.mean(each.evaluation.mse)), default=None)


@dataclass(frozen=True)
class Data:
    """A data set to hold tokenizers against."""

    name: str
    path: Path
    episodes: Episodes


def reconstruct(name: str, path: Path, candidates: list[Data]) -> Reconstruction:
    """Measure the tokenizer at a path on the data that it was fitted to, or on what comes closest."""
    tokenizer = load_tokenizer(path)
    data = _choose_data(name, tokenizer, candidates)
    fitted_to = tokenizer.fitted_to
    validation, seed = float(fitted_to.get("validation", 0.1)), int(fitted_to.get("seed", 0))
    _, held_out = split_windows(data.episodes, tokenizer.space, validation, seed)
    numbers = draw_windows(held_out, _CHUNKS)
    chunks = chunks_at(held_out, numbers, tokenizer)
    known = _closeness(fitted_to, data) != (False, False)
    return Reconstruction(
        name=name,
        method=method_of(name),
        data=data.name,
        space=tokenizer.space,
        dimensions=data.episodes.action_names or tuple(f"dimension {dim}" for dim in range(tokenizer.action_dim)),
        motions=tokenizer.space.transform.state_key is None and _include_zero(data.episodes),
        ordered=tokenizer.prefix_decodable,
        vocab_size=tokenizer.vocab_size,
        evaluation=evaluate(tokenizer, chunks, everything=draw_chunks(held_out, tokenizer), name=name),
        examples=_examples(tokenizer, held_out, numbers[list(dict.fromkeys(typical_chunks(chunks, _EXAMPLES)))]),
        remark=""
        if known
        else f"{name} was fitted to {fitted_to.get('data', 'unknown data')}, which may hold the same episodes as "
        f"{data.name}: its chunks may not be new to it.",
    )


def _include_zero(episodes: Episodes) -> bool:
    places = episodes.actions[:, :3]
    return bool(((places.min(0) <= 0) & (places.max(0) >= 0)).all())


def _choose_data(name: str, tokenizer: ActionTokenizer, candidates: list[Data]) -> Data:
    """The data set it was fitted to, or one with as many frames (it may have been moved), or any that fits."""
    fitting = [data for data in candidates if data.episodes.action_dim == tokenizer.action_dim]
    if not fitting:
        raise InvalidOption(
            f"there is no data set with {tokenizer.action_dim}-D actions to hold the tokenizer {name} against; "
            "name one with --data"
        )
    return max(fitting, key=lambda data: _closeness(tokenizer.fitted_to, data))


def _closeness(fitted_to: Mapping[str, object], data: Data) -> tuple[bool, bool]:
    """Whether it is at the place that the tokenizer was fitted from, and whether it has as many frames."""
    there = Path(str(fitted_to.get("data", ""))).resolve() == data.path.resolve()
    return there, fitted_to.get("frames") == data.episodes.num_frames


def _examples(
    tokenizer: ActionTokenizer, windows: Windows, numbers: Int64[np.ndarray, " examples"]
) -> tuple[Example, ...]:
    chunks = chunks_at(windows, numbers, tokenizer)
    tokens = chunks.encode(tokenizer)
    decoded = decode_prefixes(tokenizer, tokens, chunks)
    errors = model_errors(tokenizer, decoded, chunks)
    episodes, steps = windows.locate(numbers)
    return tuple(
        Example(
            label=f"{windows.episodes.task(episodes[row])}, from step {steps[row]}",
            truth=_short(chunks.actions[row, chunks.valid[row]].T.tolist()),
            decoded=_short(decoded[row][:, chunks.valid[row]].transpose(1, 2).tolist()),
            errors=_short(errors[row].tolist()),
            tokens=tokens.tolist()[row],
        )
        for row in range(len(chunks))
    )


def _short(values: Any) -> Any:
    """Numbers in nested lists with as many digits as can be seen, because the page holds thousands of them."""
    return [_short(value) for value in values] if isinstance(values, list) else float(f"{values:.4g}")
