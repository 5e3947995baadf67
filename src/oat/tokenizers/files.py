"""Tokenizers on disk: config.json, model.safetensors and a model card, in a directory that can be moved anywhere."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from oat.data.normalize import Normalizer
from oat.errors import CheckpointError, NotFitted
from oat.io.bounded import build_bounded, check_shapes
from oat.io.checkpoints import CONFIG_FILE, find_checkpoint, load_checkpoint, staged_checkpoint, write_checkpoint
from oat.io.config_json import config_from_json, config_to_json
from oat.io.model_cards import ModelCard
from oat.io.training_record import TrainingRecord, stored_record
from oat.tokenizers.config import TokenizerConfig
from oat.tokenizers.space import ActionSpace

_LOAD = """import oat

tokenizer = oat.load_tokenizer("DIRECTORY")
tokens = tokenizer.encode(actions)
decoded = tokenizer.decode(tokens)
"""
_MEAN_CHUNK = "mean_chunk"

Kind = TypeVar("Kind", bound="TokenizerFiles")


def _numbers_of_shape(values: Any, shape: torch.Size) -> Tensor:
    """Return nested lists of a configuration as a tensor of this shape, or raise `CheckpointError`."""
    try:
        numbers = torch.tensor(values, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise CheckpointError(f"{_MEAN_CHUNK} must be rows of numbers ({error})") from error
    if numbers.shape != shape or not bool(numbers.isfinite().all()):
        found = " × ".join(map(str, numbers.shape))
        wanted = " × ".join(map(str, shape))
        raise CheckpointError(f"{_MEAN_CHUNK} must be {wanted} finite numbers, it is {found}")
    return numbers


class TokenizerFiles(nn.Module, ABC):
    """Write and read the checkpoints of tokenizers; what they compute is not this class's business."""

    kind: ClassVar[str]
    config_class: ClassVar[type[TokenizerConfig]]
    total: ClassVar[bool] = True
    """P.2: whether every token sequence of an allowed length decodes."""
    prefix_decodable: ClassVar[bool] = False
    """P.3: whether sequences of every length from 1 decode."""

    config: Any
    mean_chunk: Tensor

    def __init__(self, space: ActionSpace) -> None:
        super().__init__()
        self.space = space
        self.normalizer = Normalizer(space.model_dim)
        # Of the fitted data, in model space; checkpoints from before it was recorded have the middle of their range.
        self.register_buffer("mean_chunk", torch.zeros(space.action_horizon, space.model_dim), persistent=False)
        self.training_record = TrainingRecord()
        """Record of the fitting (data, split, seed, recipe, measures), which is stored with every checkpoint."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Return how many token ids there are."""

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """Return the most tokens that a chunk can have."""

    @property
    def is_fitted(self) -> bool:
        """Return whether it knows the range of the actions it is for: only fitting and loading tell it."""
        return bool(self.normalizer.low.isfinite().all())

    def check_fitted(self) -> None:
        """Raise `NotFitted` for a tokenizer that was never fitted."""
        if not self.is_fitted:
            name = type(self).__name__
            raise NotFitted(f"this {name} was never fitted: {name}.fit(chunks) or oat.load_tokenizer gives one that is")

    def save(self, directory: str | Path) -> None:
        """Write a checkpoint directory that `load` reads anywhere."""
        self.check_fitted()  # before an earlier checkpoint there is touched
        with staged_checkpoint(Path(directory), self.kind) as staging:
            self.save_files(staging)

    def save_files(self, directory: Path, card: ModelCard | None = None) -> None:
        """Write the checkpoint's files, with this card or its usual one, into an existing directory."""
        self.check_fitted()
        write_checkpoint(directory, self.kind, self.describe(), self.state_dict(), card or self.card())

    def describe(self) -> dict[str, Any]:
        """Return what config.json holds beside the kind: with the weights, all that the tokenizer is."""
        described = {"space": config_to_json(self.space), "config": config_to_json(self.config)}
        # "fitted_to" is the record's name in files since the first version; published checkpoints have it.
        described |= {"fitted_to": self.training_record.to_json(), **self.text_state()}
        if bool(self.mean_chunk.any()):
            described[_MEAN_CHUNK] = self.mean_chunk.tolist()
        return described

    def card(self) -> ModelCard:
        """Return what the model card beside a checkpoint says."""
        chunk = f"{self.space.action_horizon} × {self.space.action_dim}"
        lengths = f"1 … {self.max_tokens}" if self.prefix_decodable or not self.total else f"{self.max_tokens}"
        promise = "Every sequence of valid tokens decodes." if self.total else "Not every sequence of tokens decodes."
        ordered = " Every prefix decodes, coarse motion first." if self.prefix_decodable else ""
        return ModelCard(
            title=f"{type(self).__name__}: {chunk} actions as {lengths} tokens",
            about=f"Turns chunks of robot actions into tokens and back. {promise}{ordered}",
            load=_LOAD,
            tags=("robotics", "action-tokenizer", self.kind),
            shapes={
                "actions per chunk × numbers per action": chunk,
                "tokens per chunk": lengths,
                "vocabulary": f"{self.vocab_size:,}",
                "applied before normalisation": f"`{json.dumps(config_to_json(self.space.transform))}`",
                "parameters": f"{sum(parameter.numel() for parameter in self.parameters()):,}",
                "configuration": f"`{json.dumps(config_to_json(self.config))}`",
            },
            ranges=self.normalizer.ranges(),
            record=self.training_record,
            bits=math.log2(self.vocab_size),
        )

    @classmethod
    def load(cls: type[Kind], directory: str | Path) -> Kind:
        """Read a checkpoint of this kind, or the best one of a run; what was saved is fitted."""
        folder = find_checkpoint(directory)
        described, tensors = load_checkpoint(folder, {cls.kind})
        try:
            tokenizer = build_bounded(folder, cls.restoring(described), tensors)
            tokenizer.training_record = stored_record(described)
        except KeyError as error:
            raise CheckpointError(f"{folder / CONFIG_FILE} lacks {error}") from error
        check_shapes(folder, tokenizer.state_dict(), tensors)
        tokenizer.load_state_dict(tensors)
        try:
            tokenizer.load_mean_chunk(described)
        except CheckpointError as error:
            raise CheckpointError(f"{folder / CONFIG_FILE}: {error}") from error
        tokenizer.check_restored()
        return tokenizer.eval()  # dropout in a frozen tokenizer would perturb the tokens that a policy learns

    @classmethod
    def restoring(cls: type[Kind], described: dict[str, Any]) -> Callable[[], Kind]:
        """Return what builds the tokenizer that was described, without its weights."""
        space = config_from_json(ActionSpace, described["space"])
        config: Any = config_from_json(cls.config_class, described["config"])
        return partial(cls._restore, space, config, described)

    @classmethod
    def _restore(cls: type[Kind], space: ActionSpace, config: Any, described: dict[str, Any]) -> Kind:
        """Return the tokenizer of a checkpoint without its weights."""
        tokenizer = cls(space, config)  # type: ignore[call-arg]  # every kind takes its configuration
        # Before the tensors: a kind may need it to know what else it consists of.
        tokenizer.load_text_state(described)
        return tokenizer

    def load_mean_chunk(self, described: Mapping[str, Any]) -> None:
        """Restore the mean of the fitted chunks, where it was recorded."""
        if _MEAN_CHUNK in described:
            self.mean_chunk.copy_(_numbers_of_shape(described[_MEAN_CHUNK], self.mean_chunk.shape))

    def text_state(self) -> dict[str, str]:
        """Return what a checkpoint must hold as text, beside configuration and tensors, such as FAST's merges."""
        return {}

    def load_text_state(self, described: dict[str, Any]) -> None:
        """Restore from a checkpoint's configuration what `text_state` added to it."""

    def check_restored(self) -> None:
        """Raise `CheckpointError` where what was loaded contradicts itself."""
